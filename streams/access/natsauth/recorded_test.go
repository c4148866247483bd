package natsauth_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth/authtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// recorded are the subjects that a user publishes or subscribes to, in a log of so many lanes as the tests have. They come from a tour
// of all features, so that no right is tested with a subject that nobody uses.
func recorded(t testing.TB, user, does string) (subjects []string) {
	t.Helper()
	kinds, err := authtest.Read("testdata/subjects.txt")
	streamtest.Must(t, err)
	for kind := range kinds {
		if of, ok := strings.CutPrefix(kind, user+" "+does+" "); ok {
			subjects = append(subjects, authtest.Instances(of, lanes)...)
		}
	}
	if len(subjects) == 0 {
		t.Fatalf("the list has nothing that %s would %s", user, does)
	}
	slices.Sort(subjects)
	return slices.Compact(subjects)
}

// elsewhere are rights that the tour needs nothing of, with a reason; # is any stream.
var elsewhere = map[string]string{
	"$JS.ACK.*.*.#.>":                      "the flag js_ack_fc_v2 of NATS writes acknowledgements so",
	"$JS.FC.#":                             "flow control begins with megabytes in flight of one consumer",
	"$JS.SNAPSHOT.ACK.#.>":                 "copies above the window of 8 MiB; a test of package backup has a small one",
	"$JS.API.STREAM.DELETE.#":              "a restore that runs again removes what it had made",
	"$JS.API.STREAM.UPDATE.#":              "a restore to another number of copies",
	"$JS.API.STREAM.SNAPSHOT.SCRIP_PUSH_#": "a backup while reminders wait, or are given up",
	"$JS.API.STREAM.RESTORE.SCRIP_PUSH_#":  "its restore",
	"$JS.SNAPSHOT.RESTORE.SCRIP_PUSH_#":    "likewise",
	"$JS.API.STREAM.PURGE.SCRIP_CMD_#":     "commands are purged in steps of thousands",
	"$JS.API.STREAM.PURGE.OBJ_SCRIP_SNAP":  "the third snapshot replaces the first",
	"$JS.API.STREAM.MSG.GET.#":             "single messages are read from leaders where a bucket has no direct gets, and by skips, letters and searches",
	"$JS.API.DIRECT.GET.#":                 "nats.go reads a bucket with direct gets by sequence or by subject, as the server announces it",
	"$JS.API.CONSUMER.#":                   "which requests a read makes is for nats.go to choose, and differs when a consumer is lost",
	"$JS.ACK.SCRIP_PUSH_OUT.>":             "senders deliver what was held back, where push.merge is set",
	"scrip.push.out":                       "likewise",
	"scrip.cmd.*":                          "programs with the log-in of the data directory, see the contract; servers forward where NATS maps nothing",
	"scrip.admin.*":                        "likewise",
	"scrip.lane.*.cmd.*":                   "likewise",
	"scrip.lane.*.admin.*":                 "likewise",
	"scrip.evt.*":                          "such programs follow the log",
	"scrip.rmd.*":                          "likewise",
	"scrip.claim.*":                        "such programs use every endpoint; the command line claims by way of the lane",
	"scrip.remind.*":                       "likewise",
	"scrip.unremind.*":                     "likewise",
	"scrip.reminder.show":                  "likewise",
	"scrip.rebuild.#":                      "rebuild --undo and --drop-previous",
}

// elsewhereOf returns the row for a right, "" = there is none.
func elsewhereOf(right string) string {
	for pattern := range elsewhere {
		before, after, any := strings.Cut(pattern, "#")
		if right == pattern || any && strings.HasPrefix(right, before) && strings.HasSuffix(right, after) {
			return pattern
		}
	}
	return ""
}

func matches(subject string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return server.SubjectMatchesFilter(subject, p) })
}

// TestEveryRecordedSubjectIsAllowed: to servers, and to some key of its role.
func TestEveryRecordedSubjectIsAllowed(t *testing.T) {
	may := natsauth.OfServers(lanes)
	for does, patterns := range map[string][]string{"publish": may.Publish, "subscribe": may.Subscribe} {
		for _, subject := range recorded(t, "servers", does) {
			if !matches(subject, patterns) {
				t.Errorf("servers %s %s, and may not", does, subject)
			}
		}
	}
	for _, role := range []access.Role{access.Producer, access.Support, access.Operator, access.Analyst, access.Sender} {
		var patterns []string
		for _, p := range kinds {
			if p.ID = "x"; p.Role == role {
				p.ID = "01234567"
				perms, _ := natsauth.Of(p, lanes)
				patterns = append(patterns, perms.Publish...)
			}
		}
		for _, subject := range recorded(t, role.String(), "publish") {
			if !matches(subject, patterns) {
				t.Errorf("%s publish %s, and may not", role, subject)
			}
		}
	}
}

// TestEveryRightIsUsed: a right of servers that no feature uses is listed with a reason, or is to go. So is a reason.
func TestEveryRightIsUsed(t *testing.T) {
	may, needed := natsauth.OfServers(lanes), map[string]bool{}
	for does, rights := range map[string][]string{"publish": may.Publish, "subscribe": may.Subscribe} {
		subjects := recorded(t, "servers", does)
		for _, right := range rights {
			if slices.ContainsFunc(subjects, func(s string) bool { return server.SubjectMatchesFilter(s, right) }) {
				continue
			}
			row := elsewhereOf(right)
			if row == "" {
				t.Errorf("servers may %s %s, and no feature does", does, right)
			}
			needed[row] = true
		}
	}
	for row := range elsewhere {
		if !needed[row] {
			t.Errorf("no right is for %s", row)
		}
	}
}
