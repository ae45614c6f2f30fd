"""The scripts: for each protection, short faults that lead to a duplicate without it, and to none with it."""

from tests.model import scenarios_growth, scenarios_lanes, scenarios_ring
from tests.model.stage import SCRIPTS

__all__ = ["SCRIPTS", "scenarios_growth", "scenarios_lanes", "scenarios_ring"]
