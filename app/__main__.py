"""`python -m app` is `ticketd`."""

from app.commands.cli import main

if __name__ == "__main__":
    main()
