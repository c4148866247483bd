package server

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// values are the values of a collector's metrics, by name and the values of labels.
func values(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	streamtest.Must(t, err)
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += " " + l.GetValue()
			}
			all[name] = m.GetGauge().GetValue()
		}
	}
	return all
}

// TestPostgresDown: a server whose PostgreSQL does not answer has 0, not nothing.
func TestPostgresDown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	streamtest.Must(t, err)
	streamtest.Must(t, l.Close())
	pool, err := pgxpool.New(t.Context(), "postgres://a:b@"+l.Addr().String()+"/c")
	streamtest.Must(t, err)
	defer pool.Close()
	if got := values(t, newPostgresMetric(pool)); len(got) != 1 || got["scrip_postgres_up"] != 0 {
		t.Errorf("%v", got)
	}
}

// TestDisks: places on one disk are one disk, and a place that is not there yet has no size.
func TestDisks(t *testing.T) {
	dir := t.TempDir()
	d := disks{{"data", func() string { return filepath.Join(dir, "none") }}, {"log", func() string { return dir }}, {"tables", func() string { return dir }}}
	got := values(t, d)
	if free, size := got["scrip_disk_free_bytes log"], got["scrip_disk_size_bytes log"]; len(got) != 2 || size <= 0 || free > size {
		t.Errorf("%v", got)
	}
	if now := d.now(); len(now) != len(d) || now[0].Place != "data" || now[0].Size != 0 || now[1].Dev != now[2].Dev {
		t.Errorf("%+v", now)
	}
}
