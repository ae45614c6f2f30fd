-- nextval logs only every 32nd value and does not wait for the disk. The message makes each commit wait.
SELECT nextval('photos'), pg_logical_emit_message(true, 'ticket', '');
