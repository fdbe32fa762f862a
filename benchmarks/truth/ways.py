"""The two ways in which the truth set asks: by rules alone, and with the job's calibration."""

WAYS = ("rules", "calibrated")
