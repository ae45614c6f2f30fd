#!/bin/bash
# Makes the account of the ticket servers, with the least privileges they work with. Run by the MySQL image at the first
# start of an empty data directory (MYSQL_USER would GRANT ALL), and again by hand whenever the password has changed.
#
#   SELECT          MAX(id), the high-water marks, the tables there are
#   INSERT, DELETE  what REPLACE is made of
#   UPDATE          the server's own tables (they begin with _)
#   CREATE          those tables, and a sequence that PUT makes or that one database lacks
set -euo pipefail

password=$(</run/secrets/tickets_database_password)
quoted=${password//\\/\\\\}
quoted=${quoted//\'/\\\'}

root_password=${MYSQL_ROOT_PASSWORD:-$(<"${MYSQL_ROOT_PASSWORD_FILE:-/dev/null}")}

MYSQL_PWD=$root_password mysql --protocol=socket --user=root <<SQL
CREATE USER IF NOT EXISTS 'tickets'@'%' IDENTIFIED BY '$quoted';
ALTER USER 'tickets'@'%' IDENTIFIED BY '$quoted';
GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON \`$MYSQL_DATABASE\`.* TO 'tickets'@'%';
SQL
