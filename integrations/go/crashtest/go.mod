module tidewater/crashtest

go 1.21
