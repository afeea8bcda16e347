"""Following a stream: answers as its moments come, a log of them, alarms on drift, and models that are trained anew."""
