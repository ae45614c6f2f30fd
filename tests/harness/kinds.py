"""Every kind of sequence, as the contract has them."""

KINDS = (
    "ticket",
    "instagram",
    "instagram32",
    "snowflake",
    "flake",
    "objectid",
    "uuid7",
    "ulid",
    "simpleflake",
    "uuid4",
)
