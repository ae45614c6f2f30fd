"""An app of Django's for the tests of TicketField."""
