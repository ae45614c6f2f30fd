-- The first ticket tables. A table is a sequence: its counter is the sequence's position, and one more object type is
-- one more table (`CREATE TABLE albums LIKE Tickets64`, or PUT /sequence/albums).
--
-- Run this in the database that the ticket server uses, on every ticket database; it may be run again and changes
-- nothing that is there. MySQL 8.0 or later and MariaDB 10.6 or later. The server makes its own tables (they begin
-- with `_`) by itself.
--
-- Why the tables look like this:
--
--   stub is the primary key   A ticket is drawn with REPLACE INTO ... (stub) VALUES ('a'). With Flickr's published keys
--                             (id primary, stub unique) REPLACE deletes a row and inserts another under gap locks, and
--                             concurrent draws deadlock. Keyed by stub it updates the row in place: no deadlocks, as
--                             long as every statement names its stubs in the same order.
--   KEY id (id)               An AUTO_INCREMENT column has to lead some index, and MAX(id) is read through it. It
--                             need not be unique: the counter never gives an id twice.
--   ascii_bin                 One byte, compared as it is; under a default collation 'a' and 'A' are the same stub.
--   InnoDB                    A commit survives kill -9 and, with durable settings, a power cut. A lost row would be
--                             a ticket issued twice.
--   UNSIGNED                  Twice the tickets of a signed column for the same bytes.

-- The template of 64-bit sequences, and a sequence itself.
CREATE TABLE IF NOT EXISTS Tickets64 (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  stub CHAR(1) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  PRIMARY KEY (stub),
  KEY id (id)
) ENGINE = InnoDB;

-- Where an id has to fit into 32 bits: it ends at 4,294,967,295.
CREATE TABLE IF NOT EXISTS Tickets32 (
  id INT UNSIGNED NOT NULL AUTO_INCREMENT,
  stub CHAR(1) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  PRIMARY KEY (stub),
  KEY id (id)
) ENGINE = InnoDB;

-- The first object types. Spelled out and not LIKE Tickets64: that may be a table here already, made to Flickr's
-- schema, and LIKE would copy its keys and its engine. `groups` is a reserved word in MySQL 8.
CREATE TABLE IF NOT EXISTS `photos` (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  stub CHAR(1) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  PRIMARY KEY (stub),
  KEY id (id)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS `accounts` (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  stub CHAR(1) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  PRIMARY KEY (stub),
  KEY id (id)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS `groups` (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  stub CHAR(1) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  PRIMARY KEY (stub),
  KEY id (id)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS `offline_tasks` (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  stub CHAR(1) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  PRIMARY KEY (stub),
  KEY id (id)
) ENGINE = InnoDB;
