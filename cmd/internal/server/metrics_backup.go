package server

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// backupDescs are the metrics of the last backup.
var backupDescs = [...]*prometheus.Desc{
	prometheus.NewDesc("scrip_backup_age_seconds", "How long ago the last good backup of the log began; where there was none, the log's creation. "+
		"The same at all servers. Absent while it cannot be read.", nil, nil),
	prometheus.NewDesc("scrip_backup_age_limit_seconds", "How old it may be: setting backup.max_age; 0 = it is not watched.", nil, nil),
}

// backupMetrics reads the record of the last backup when it is scraped.
type backupMetrics struct {
	scraped[time.Time]
	config settings.Source
}

func newBackupMetrics(js jetstream.JetStream, log topology.Log, config settings.Source) *backupMetrics {
	return &backupMetrics{config: config, scraped: scraped[time.Time]{read: func(ctx context.Context) (time.Time, error) {
		last, ok, err := backup.Last(ctx, js)
		if err == nil && !ok {
			return log.Created, nil
		}
		return last.Begun, err
	}}}
}

func (b *backupMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range backupDescs {
		ch <- d
	}
}

func (b *backupMetrics) Collect(ch chan<- prometheus.Metric) {
	if since, err := b.now(); err == nil {
		ch <- prometheus.MustNewConstMetric(backupDescs[0], prometheus.GaugeValue, max(0, time.Since(since).Seconds()))
	}
	now, _ := b.config.Current()
	ch <- prometheus.MustNewConstMetric(backupDescs[1], prometheus.GaugeValue, now.BackupMaxAge.Seconds())
}
