"""The contract's HTTP, on the embedded pair and on MySQL alike; nothing here may import `app`."""
