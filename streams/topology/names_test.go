package topology

import (
	"strings"
	"testing"
)

func TestParseCommandSubject(t *testing.T) {
	for _, tc := range []struct {
		subject  string
		kind     Kind
		lane     int
		campaign string
	}{
		{LaneCmdFor(3, "summer"), Cmd, 3, "summer"},
		{LaneAdminFor(0, "A_-9"), Admin, 0, "A_-9"},
		{LaneCmd(63), Multi, 63, ""},
		{LaneDue(12), Due, 12, ""},
		{LaneShop(7), Shop, 7, ""},
	} {
		kind, lane, campaign, ok := ParseCommandSubject(tc.subject)
		if !ok || kind != tc.kind || lane != tc.lane || campaign != tc.campaign {
			t.Errorf("%s parsed as %v %d %q %v", tc.subject, kind, lane, campaign, ok)
		}
	}
	for _, subject := range []string{
		"", "scrip", "scrip.cmd.summer", "scrip.lane.", "scrip.lane.1", "scrip.lane.1.", "scrip.lane.1.cmd.", "scrip.lane.1.admin",
		"scrip.lane.1.admin.", "scrip.lane.1.due.x", "scrip.lane.1.shop.x", "scrip.lane.1.cmd.a.b", "scrip.lane.01.cmd", "scrip.lane.+1.cmd", "scrip.lane.-1.cmd",
		"scrip.lane.x.cmd", "scrip.lane.99999999999999999999.cmd", "scrip.evt.1", "scrip.lane.1.evt",
	} {
		if kind, lane, campaign, ok := ParseCommandSubject(subject); ok {
			t.Errorf("%q parsed as %v %d %q", subject, kind, lane, campaign)
		}
	}
}

func FuzzParseCommandSubject(f *testing.F) {
	f.Add("scrip.lane.3.cmd.summer")
	f.Add("scrip.lane.3.due")
	f.Fuzz(func(t *testing.T, subject string) {
		kind, lane, campaign, ok := ParseCommandSubject(subject)
		if !ok {
			return
		}
		want := map[Kind]string{Cmd: LaneCmdFor(lane, campaign), Admin: LaneAdminFor(lane, campaign), Multi: LaneCmd(lane), Due: LaneDue(lane), Shop: LaneShop(lane)}[kind]
		if want != subject {
			t.Errorf("%q parsed as %v, which is written %q", subject, kind, want)
		}
	})
}

func TestCheckServer(t *testing.T) {
	for version, refused := range map[string]bool{"2.10.29": true, "1.9.0": true, "2.11.0": false, "2.15.2": false, "3.0.0": false, "2.15.2-beta.1": false, "": false, "dev": false} {
		err := CheckServer(version)
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), version) {
			t.Errorf("%q: %v", version, err)
		}
	}
}

func TestMayReply(t *testing.T) {
	for _, test := range []struct {
		subject    string
		may, inbox bool
	}{
		{"_INBOX.abc", true, true},
		{"_INBOX.abc.7", true, true},
		{"_INBOX_producer.k3v9p2x7.abc", true, true},
		{"_R_.kLmN0p.x", true, false},
		{"_GR_.abcdef.ghijkl._INBOX.abc", true, false},
		{"_GR_.abcdef.ghijkl._R_.abc", true, false},

		{"", false, false},
		{"_INBOX", false, false},
		{"_INBOX.", false, false},
		{"_INBOX_producer", false, false},
		{"_INBOX_producer.", false, false},
		{"_INBOX_sender.k3v9p2x7.abc", false, false}, // the servers' own user may not publish there
		{"_INBOXES.abc", false, false},
		{"_INBOX.a..b", false, false},
		{"_INBOX.>", false, false},
		{"_INBOX.*", false, false},
		{"_INBOX.a b", false, false},
		{"_INBOX.a\r\nPUB", false, false},
		{"_INBOX." + strings.Repeat("x", maxSubject), false, false},
		{"_R_.", false, false},
		{"_R_.>", false, false},
		{"_R_", false, false},
		{"_GR_.abcdef.ghijkl.scrip.evt.0", false, false},
		{"_GR_.abcdef.ghijkl.", false, false},
		{"_GR_.x._INBOX.abc", false, false},
		{"scrip.evt.0", false, false},
		{"$JS.API.STREAM.DELETE.SCRIP_EVT_3", false, false},
		{"$KV.SCRIP_LEASE.lease.lane.1", false, false},
		{"$JS.ACK.SCRIP_EVT_0.x.1.1.1.1.1", false, false},
		{"foo._INBOX.abc", false, false},
	} {
		if got := MayReply(test.subject); got != test.may {
			t.Errorf("MayReply(%q) is %v", test.subject, got)
		}
		if got := ReplyInbox(test.subject); got != test.inbox {
			t.Errorf("Inbox(%q) is %v", test.subject, got)
		}
	}
}
