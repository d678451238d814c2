"""What LimitRanges give to pods and refuse them: pure, for admission, controllers and people."""
