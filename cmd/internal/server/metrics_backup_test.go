package server

import (
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestTheAgeOfTheLastBackup: it is that of the log where there was no backup, and absent where that is not known.
func TestTheAgeOfTheLastBackup(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	key := [32]byte{1}
	log, err := topology.Ensure(t.Context(), js, topology.Spec{Lanes: 1, KeyFingerprint: code.Fingerprint(key)})
	streamtest.Must(t, err)
	log.Created = time.Now().Add(-time.Hour)
	limit := settings.Default()
	ages := func() map[string]time.Duration {
		r := prometheus.NewRegistry()
		r.MustRegister(newBackupMetrics(js, log, settings.Fixed(limit)))
		families, err := r.Gather()
		streamtest.Must(t, err)
		all := map[string]time.Duration{}
		for _, f := range families {
			seconds := time.Duration(f.GetMetric()[0].GetGauge().GetValue()) * time.Second
			all[f.GetName()] = seconds.Truncate(time.Minute)
		}
		return all
	}
	const age, most = "scrip_backup_age_seconds", "scrip_backup_age_limit_seconds"
	check := func(what string, want map[string]time.Duration) {
		t.Helper()
		if have := ages(); !maps.Equal(have, want) {
			t.Errorf("%s: %v, want %v", what, have, want)
		}
	}
	check("no backup", map[string]time.Duration{age: time.Hour, most: 48 * time.Hour})
	_, err = backup.Create(t.Context(), js, t.TempDir()+"/b", backup.CreateOptions{Key: key, Logger: streamtest.Logger(t)})
	streamtest.Must(t, err)
	limit.BackupMaxAge = 0
	check("a backup", map[string]time.Duration{age: 0, most: 0})
	kv, err := js.KeyValue(t.Context(), topology.StateBucket)
	if err == nil {
		_, err = kv.PutString(t.Context(), "backup", "no JSON")
	}
	streamtest.Must(t, err)
	check("an unreadable record", map[string]time.Duration{most: 0})
}
