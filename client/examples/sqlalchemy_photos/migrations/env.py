"""Alembic's entry: the tables are those of photobook.py. No ticket is taken in a migration."""

from alembic import context
from photobook import DATABASE_URL, Base
from sqlalchemy import create_engine

engine = create_engine(DATABASE_URL)
with engine.connect() as connection:
    context.configure(connection=connection, target_metadata=Base.metadata)
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
