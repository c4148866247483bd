package server

import (
	"context"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/cmd/internal/sample"
)

// place is where this server stores something.
type place struct {
	name string
	dir  func() string // "" = not known yet
}

// places are where this server stores something, once its parts are started.
func (s *server) places() []place {
	all := []place{{"data", s.dir.Path}}
	if s.natsd != nil {
		all = append(all, place{"log", s.dir.NATS})
	}
	if s.tables != nil && s.tables.cluster != nil {
		all = append(all, place{"tables", s.tables.cluster.Dir})
	}
	return all
}

// startDisks measures the disks when metrics are scraped.
func (s *server) startDisks(context.Context) error {
	return s.metrics.registry.Register(disks(s.places()))
}

// disks measures the disks of places. One that cannot be measured has size 0.
type disks []place

func (d disks) now() []sample.Disk {
	all := make([]sample.Disk, len(d))
	for i, p := range d {
		all[i].Place = p.name
		var fs syscall.Statfs_t
		var file syscall.Stat_t
		if dir := p.dir(); syscall.Statfs(dir, &fs) == nil && syscall.Stat(dir, &file) == nil {
			size := uint64(fs.Bsize)
			all[i] = sample.Disk{Place: p.name, Dev: uint64(file.Dev), Free: fs.Bavail * size, Size: fs.Blocks * size}
		}
	}
	return all
}

// diskDescs are the metrics of a disk.
var diskDescs = [...]*prometheus.Desc{
	prometheus.NewDesc("scrip_disk_free_bytes", "What this server may still write to the disk of a place: data (the data directory), log (of the embedded NATS), tables (of the private PostgreSQL). "+
		"A place on the disk of an earlier one has none.", []string{"place"}, nil),
	prometheus.NewDesc("scrip_disk_size_bytes", "Size of that disk.", []string{"place"}, nil),
}

// Describe and Collect make it a prometheus.Collector.
func (d disks) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range diskDescs {
		ch <- desc
	}
}

func (d disks) Collect(ch chan<- prometheus.Metric) {
	seen := map[uint64]bool{}
	for _, one := range d.now() {
		if one.Size == 0 || seen[one.Dev] {
			continue
		}
		seen[one.Dev] = true
		ch <- prometheus.MustNewConstMetric(diskDescs[0], prometheus.GaugeValue, float64(one.Free), one.Place)
		ch <- prometheus.MustNewConstMetric(diskDescs[1], prometheus.GaugeValue, float64(one.Size), one.Place)
	}
}
