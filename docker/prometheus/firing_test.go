package prometheus

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/schema"
)

// TestAlertsFire: Prometheus's own engine evaluates the rules each five seconds, as promtool test rules does, on series that are
// written as there; promtool itself would require a hundred more modules. Of each case the alerts are listed that fire at its end, with their labels.
func TestAlertsFire(t *testing.T) {
	const every = 5 * time.Second
	for name, c := range map[string]struct {
		series string
		at     time.Duration
		fire   string
	}{
		"no owner": {`
			scrip_lane_owned{lane="1",instance="a",job="scrip"} 1x6 0x60
			scrip_lane_owned{lane="1",instance="b",job="scrip"} 0x66`,
			90 * time.Second, `ScripLaneHasNoOwner{lane="1"}`},
		"one server of three is gone": {`
			up{instance="a",job="scrip"} 1x6 0x200
			up{instance="b",job="scrip"} 1x206`,
			10 * time.Minute, `ScripDown{instance="a", job="scrip"}`},
		"a projector on standby is not late": {`
			scrip_projection_following{instance="a",job="scrip",lane="0"} 1x200
			scrip_projection_lag_seconds{instance="a",job="scrip",lane="0"} 0x200
			scrip_projection_following{instance="b",job="scrip",lane="0"} 0x200`,
			10 * time.Minute, ``},
		"the projector has stopped, and another one is on standby": {`
			scrip_projection_following{instance="a",job="scrip",lane="0"} 0x200
			scrip_projection_lag_seconds{instance="a",job="scrip",lane="0"} 0+5x200
			scrip_projection_stopped{instance="a",job="scrip",lane="0"} 1x200
			scrip_projection_following{instance="b",job="scrip",lane="0"} 0x200`,
			10 * time.Minute, `ScripTablesAreBehind{lane="0"} ScripTablesHaveNoProjector{lane="0"} ScripTablesStopped{lane="0"}`},
		"the projector is dead, and another one is not given its lock": {`
			up{instance="a",job="scrip"} 1x20 0x280
			up{instance="b",job="scrip"} 1x300
			scrip_projection_following{instance="a",job="scrip",lane="0"} 1x20 stale
			scrip_projection_lag_seconds{instance="a",job="scrip",lane="0"} 0x20 stale
			scrip_projection_following{instance="b",job="scrip",lane="0"} 0x300`,
			20 * time.Minute, `ScripDown{instance="a", job="scrip"} ScripTablesHaveNoProjector{lane="0"}`},
		"a projector cannot reach PostgreSQL, and another one fills the tables": {`
			scrip_projection_following{instance="a",job="scrip",lane="0"} 1x200
			scrip_projection_lag_seconds{instance="a",job="scrip",lane="0"} 0x200
			scrip_projection_following{instance="b",job="scrip",lane="0"} 0x200
			scrip_projection_stopped{instance="b",job="scrip",lane="0"} 0x200
			scrip_postgres_up{instance="b",job="scrip"} 0x200`,
			10 * time.Minute, `ScripPostgresDown{instance="b"}`},
		"all projectors are on standby": {`
			scrip_projection_following{instance="a",job="scrip",lane="0"} 0x200
			scrip_projection_following{instance="b",job="scrip",lane="0"} 0x200`,
			10 * time.Minute, `ScripTablesHaveNoProjector{lane="0"}`},
		"the tables lag": {`
			scrip_projection_following{instance="a",job="scrip",lane="0"} 1x200
			scrip_projection_lag_seconds{instance="a",job="scrip",lane="0"} 0+5x200`,
			10 * time.Minute, `ScripTablesAreBehind{lane="0"}`},
		"a scheduler works with its lane": {`
			scrip_lane_owned{lane="1",instance="a",job="scrip"} 1x200
			scrip_lane_owned{lane="1",instance="b",job="scrip"} 0x200
			scrip_scheduler_caught_up{lane="1",instance="a",job="scrip"} 1x200`,
			10 * time.Minute, ``},
		"a lane has no scheduler": {`
			scrip_lane_owned{lane="1",instance="a",job="scrip"} 1x200
			scrip_lane_owned{lane="2",instance="a",job="scrip"} 1x200
			scrip_scheduler_caught_up{lane="2",instance="a",job="scrip"} 1x200`,
			10 * time.Minute, `ScripSchedulerDoesNotWork{lane="1"}`},
		"a counter appears": {`
			up{instance="a",job="scrip"} 1x200
			scrip_lane_stopped_total{lane="1",instance="a",job="scrip"} _x110 1x20`,
			10 * time.Minute, `ScripLaneStopped{lane="1"}`},
		"a counter appeared long ago": {`
			up{instance="a",job="scrip"} 1x200
			scrip_lane_stopped_total{lane="1",instance="a",job="scrip"} _x10 1x190`,
			10 * time.Minute, ``},
		"what was counted in a gap of Prometheus": {`
			up{instance="a",job="scrip"} 1x20 _x80 1x100
			scrip_scheduler_disagreements_total{lane="1",instance="a",job="scrip"} 3x20 _x80 3x100`,
			10 * time.Minute, ``},
		"a kept counter appears at another server": {`
			up{instance="a",job="scrip"} 1x200
			scrip_push_dead_total{name="app",lane="1",instance="a",job="scrip"} _x50 7x150`,
			10 * time.Minute, ``},
		"a kept counter grows at all servers": {`
			scrip_push_dead_total{name="app",lane="1",instance="a",job="scrip"} 7x50 8x150
			scrip_push_dead_total{name="app",lane="1",instance="b",job="scrip"} 7x50 8x150`,
			10 * time.Minute, `ScripPushDead{name="app"}`},
		"slow writes, as in the test of package alert": {
			writes(`a`, 9888) + writes(`b`, 9890),
			10 * time.Minute, `ScripSlowWrites{lane="a"}`},
		"a disk is full": {`
			scrip_disk_free_bytes{place="log",instance="a",job="scrip"} 4x200
			scrip_disk_size_bytes{place="log",instance="a",job="scrip"} 100x200
			scrip_disk_free_bytes{place="log",instance="b",job="scrip"} 15x200
			scrip_disk_size_bytes{place="log",instance="b",job="scrip"} 100x200`,
			10 * time.Minute, `ScripDiskFills{instance="a", place="log"} ScripDiskIsFull{instance="a", place="log"}`},
		"a certificate expires in ten days": {`
			scrip_tls_expires_timestamp_seconds{instance="a",job="scrip"} 864600x200`,
			10 * time.Minute, `ScripCertificateExpires{instance="a"}`},
		"backups are old, and not watched": {`
			scrip_backup_age_seconds{instance="a",job="scrip"} 90000x200
			scrip_backup_age_seconds{instance="b",job="scrip"} 90000x200
			scrip_backup_age_limit_seconds{instance="a",job="scrip"} 86400x100 0x100
			scrip_backup_age_limit_seconds{instance="b",job="scrip"} 86400x100 0x100`,
			10 * time.Minute, ``},
		"backups are old": {`
			scrip_backup_age_seconds{instance="a",job="scrip"} 90000x200
			scrip_backup_age_limit_seconds{instance="a",job="scrip"} 86400x200`,
			10 * time.Minute, `ScripBackupIsOld`},
		"codes are guessed": {`
			scrip_wrong_codes_total{budget="key",instance="a",job="scrip"} 0+20x200
			scrip_wrong_codes_total{budget="key",instance="b",job="scrip"} 0+20x200
			scrip_wrong_codes_total{budget="public",instance="a",job="scrip"} 0+20x200`,
			10 * time.Minute, `ScripCodesAreGuessed{budget="key"}`},
		"PostgreSQL, a webhook, dead letters": {`
			up{instance="a",job="scrip"} 1x240
			scrip_postgres_up{instance="a",job="scrip"} 0x240
			scrip_webhooks{state="paused",instance="a",job="scrip"} 1x240
			scrip_webhooks{state="disabled",instance="a",job="scrip"} 1x240
			scrip_lane_outcomes_total{lane="0",command="claim",outcome="ok",instance="a",job="scrip"} 0+9x240
			scrip_lane_outcomes_total{lane="0",command="claim",outcome="invalid",instance="a",job="scrip"} _x200 1x40`,
			20 * time.Minute, `ScripCommandDeadLetters{lane="0"} ScripPostgresDown{instance="a"} ScripWebhookDisabled`},
	} {
		t.Run(name, func(t *testing.T) {
			storage := promqltest.LoadedStorage(t, "load 5s\n"+strings.TrimSpace(c.series)+"\n")
			defer storage.Close()
			engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
			var fire []string
			for _, rule := range alerts(t) {
				if !slices.ContainsFunc(named.FindAllString(c.series, -1), func(metric string) bool { return strings.Contains(rule.Expr, strings.TrimSpace(metric)) }) {
					continue // it finds nothing
				}
				active := map[string]time.Time{} // since when, by the labels
				end := time.Unix(0, 0).Add(c.at)
				for at := time.Unix(0, 0); !at.After(end); at = at.Add(every) {
					query, err := engine.NewInstantQuery(t.Context(), storage, nil, rule.Expr, at)
					if err != nil {
						t.Fatal(rule.Alert, err)
					}
					found, err := query.Exec(t.Context()).Vector()
					if err != nil {
						t.Fatal(rule.Alert, err)
					}
					before := active
					active = map[string]time.Time{}
					for _, one := range found {
						shown := strings.TrimSuffix(one.Metric.DropReserved(schema.IsMetadataLabel).String(), "{}")
						if active[shown] = at; !before[shown].IsZero() {
							active[shown] = before[shown]
						}
					}
				}
				for shown, since := range active {
					if end.Sub(since) >= time.Duration(rule.For) {
						fire = append(fire, rule.Alert+shown)
					}
				}
			}
			slices.Sort(fire)
			if got := strings.Join(fire, " "); got != c.fire {
				t.Errorf("%s fire, want %s", got, c.fire)
			}
		})
	}
}

// named are the names of metrics at the begin of lines.
var named = regexp.MustCompile(`(?m)^\s*\w+`)

// writes are the buckets of 10000 writes of a lane, of which so many took less than 0.2048 s, in each scrape.
func writes(lane string, fast int) (series string) {
	for _, b := range []struct {
		le string
		n  int
	}{{"0.1024", 9000}, {"0.2048", fast}, {"0.4096", 9939}, {"+Inf", 10000}} {
		series += fmt.Sprintf("\nscrip_lane_write_seconds_bucket{lane=%q,le=%q,instance=\"a\",job=\"scrip\"} 0+%dx200", lane, b.le, b.n)
	}
	return series
}
