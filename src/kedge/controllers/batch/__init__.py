"""Controllers of Jobs and CronJobs."""
