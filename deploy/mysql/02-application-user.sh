#!/bin/bash
# Makes the accounts of the ticket servers, with the least privileges they work with. Run by the MySQL image at the first
# start of an empty data directory (MYSQL_USER would GRANT ALL), and by hand when the password is to be changed.
#
#   02-application-user.sh             an account NAME for each file NAME_database_password in /run/secrets
#   02-application-user.sh drop NAME   removes an account under which nobody is logged in
#
# The password of an account that is in use is never changed: its ticket servers would be locked out as soon as they
# reconnect, and each probe may. A new password comes with an account of another name; docs/operations/compose.md has the steps.
#
#   SELECT          MAX(id), the high-water marks, the tables there are
#   INSERT, DELETE  what REPLACE is made of
#   UPDATE          the server's own tables (they begin with _)
#   CREATE          those tables, and a sequence that PUT makes or that one database lacks
set -euo pipefail

root_password=${MYSQL_ROOT_PASSWORD:-$(<"${MYSQL_ROOT_PASSWORD_FILE:-/dev/null}")}

as_root() { MYSQL_PWD=$root_password mysql --protocol=socket --user=root --batch --skip-column-names "$@"; }

fail() { echo "$*" >&2; exit 1; }

check_name() { [[ $1 =~ ^[a-z][a-z0-9_]{0,31}$ ]] || fail "'$1' cannot be the name of an account"; }

sessions() { as_root --execute="SELECT COUNT(*) FROM performance_schema.threads WHERE PROCESSLIST_USER = '$1'"; }

logs_in() { MYSQL_PWD=$2 mysql --protocol=socket --user="$1" --execute='SELECT 1' >/dev/null 2>&1; }

make() {
  local name=$1 password=$2 quoted
  check_name "$name"
  [[ -n $password ]] || fail "the password file of '$name' is empty"
  if ! logs_in "$name" "$password" && (($(sessions "$name"))); then
    fail "'$name' is in use with another password: put the new one into a file of another name," \
      "tickets_2_database_password for the account 'tickets_2'"
  fi
  quoted=${password//\\/\\\\}
  quoted=${quoted//\'/\\\'}
  as_root <<SQL
CREATE USER IF NOT EXISTS '$name'@'%' IDENTIFIED BY '$quoted';
ALTER USER '$name'@'%' IDENTIFIED BY '$quoted';
GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON \`$MYSQL_DATABASE\`.* TO '$name'@'%';
SQL
}

# The image sources a script that is not executable; what stands in $1 is then its own.
command=${1:-}
[[ ${BASH_SOURCE[0]} == "$0" ]] || command=

case $command in
  drop)
    check_name "${2:-}"
    (($(sessions "$2") == 0)) || fail "'$2' is in use: $(sessions "$2") connections are logged in under it"
    as_root --execute="DROP USER IF EXISTS '$2'@'%'"
    ;;
  '')
    for file in /run/secrets/*_database_password; do
      name=${file##*/}
      make "${name%_database_password}" "$(<"$file")"
    done
    ;;
  *) fail "usage: 02-application-user.sh [drop NAME]" ;;
esac
