"""The foundations of the system tests: real MySQL servers, a faulty network, the program itself, a load, a checker.

    preloaded   a process that has imported the program, and forks one for each start
    processes   child processes that die with the test run; free ports
    engine      which mysqld or mariadbd there is, and a fresh data directory of it
    schema      what is in it: the schema, the ticket server's user and its least privileges, Flickr's table
    mysqld      one ticket database as a process that can be killed, frozen, restarted, wiped, put back
    postgresql  a PostgreSQL that can be killed, and psql
    pair        two of them (or more), odd and even
    proxy       a TCP proxy whose faults have names
    names       a name service that can be taken away
    ticketd     the ticket server as a process
    load        many clients that record every answer
    history     the checker of what they recorded: no ticket twice, each in order
    tally       the same for runs without an end: an answer at a time, in little memory
    notebook    what a test takes by itself, one request after the other
    checkout    copies of this checkout, to build and to change

Everything here is ordinary blocking code that may be called from any thread; what needs an event loop (the proxy, the
load) runs one in a thread of its own, so that a test which waits for a database to start disturbs neither. Nothing
here imports `app`.
"""
