"""`python -m app` is `ticketd`."""

from app.cli import main

if __name__ == "__main__":
    main()
