#!/bin/bash
# Makes the account of the ticket servers, and then the tables, of which it owns none. Run by the PostgreSQL image at the
# first start of an empty data directory, as the owner of the database.
set -euo pipefail

password=$(<"${TICKETS_DEPLOY_PASSWORD_FILE:-/run/secrets/tickets_database_password}")
run() { psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --username="$POSTGRES_USER" --dbname="$POSTGRES_DB" "$@"; }

run --set=password="$password" <<'SQL'
CREATE ROLE tickets LOGIN PASSWORD :'password';
SQL
run --set=account=tickets --file="${TICKETS_DEPLOY_TABLES:-/tickets/01-tickets.sql}"
