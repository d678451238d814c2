"""The usage of objects for ResourceQuotas: pure functions for admission and controllers."""
