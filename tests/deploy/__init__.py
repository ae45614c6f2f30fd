"""Tests of what deploys the ticket server: the files of deploy/, docker-compose.yml, mysql_init/ and the image."""
