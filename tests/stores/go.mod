module tidewater/stores

go 1.23

require (
	github.com/syndtr/goleveldb v1.0.1-0.20210819022825-2ae1ddf74ef7
	go.etcd.io/bbolt v1.3.11
)

require (
	github.com/golang/snappy v0.0.4 // indirect
	golang.org/x/sys v0.4.0 // indirect
)
