package natsx

import (
	"strings"
	"testing"
)

func TestMay(t *testing.T) {
	for _, test := range []struct {
		subject    string
		may, inbox bool
	}{
		{"_INBOX.abc", true, true},
		{"_INBOX.abc.7", true, true},
		{"_INBOX_shop.abc", true, true},
		{"_R_.kLmN0p.x", true, false},
		{"_GR_.abcdef.ghijkl._INBOX.abc", true, false},
		{"_GR_.abcdef.ghijkl._R_.abc", true, false},

		{"", false, false},
		{"_INBOX", false, false},
		{"_INBOX.", false, false},
		{"_INBOX_shop", false, false},
		{"_INBOX_.", false, false},
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

func TestTheCheckCostsNoAllocation(t *testing.T) {
	refused := 0
	n := testing.AllocsPerRun(100, func() {
		if !MayReply("_INBOX.5Vj2zWmJ8bY1pTqNcXk0aD.gH3kLmNp") {
			refused++
		}
	})
	if n != 0 || refused != 0 {
		t.Errorf("%v allocations, refused %d times", n, refused)
	}
}
