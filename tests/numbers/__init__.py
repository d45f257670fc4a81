"""What a number means: losses, schedules, metrics and data, against values that plain torch works out."""
