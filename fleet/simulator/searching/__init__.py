"""A recorded search, played again under other rules and on other machines."""
