package seal_test

import (
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/seal"
)

const log = "01234567-89ab-7cde-8f01-23456789abcd"

func header() map[string][]string {
	return map[string][]string{"Scrip-Owner": {"o"}, "Scrip-Commands": {"1-2"}, "Scrip-Format": {"2"}, "Nats-Expected-Stream": {"SCRIP_EVT_0"}}
}

// TestSealsArePermanent: logs of years depend on these values.
func TestSealsArePermanent(t *testing.T) {
	k := seal.Derive([32]byte{1, 2, 3}, log)
	if got, want := k.Message("SCRIP_EVT_0", 7, header(), []byte("{}\n")), "4CQqyjGVnLhHK8YO-DZkrGobs6DdvlCv4QvdRPcKFOY"; got != want {
		t.Errorf("message: %s, want %s", got, want)
	}
	if got, want := k.Snapshot("lane-0", "abc"), "kOiHUJl45-5NPChK4gE4EgyQFZ3TPgNUwSbz7cs1JSE"; got != want {
		t.Errorf("snapshot: %s, want %s", got, want)
	}
}

func TestASealIsGoodForOneMessageInOnePlace(t *testing.T) {
	k := seal.Derive([32]byte{1}, log)
	h, payload := header(), []byte("{}\n")
	h[seal.Header] = []string{k.Message("SCRIP_EVT_0", 7, h, payload)}
	if !k.Valid("SCRIP_EVT_0", 7, h, payload) || !seal.WellFormed(h) {
		t.Fatal("the seal is not valid")
	}
	with := func(name string, values ...string) map[string][]string {
		out := maps.Clone(h)
		if out[name] = values; values == nil {
			delete(out, name)
		}
		return out
	}
	h["Nats-Expected-Stream"] = nil // of NATS, and not covered: a restore may drop it
	if !k.Valid("SCRIP_EVT_0", 7, h, payload) {
		t.Error("a header of NATS counts")
	}
	own := h[seal.Header][0]
	for name, valid := range map[string]bool{
		"another sequence":     k.Valid("SCRIP_EVT_0", 8, h, payload),
		"another stream":       k.Valid("SCRIP_EVT_1", 7, h, payload),
		"another payload":      k.Valid("SCRIP_EVT_0", 7, h, []byte("{}\n\n")),
		"no payload":           k.Valid("SCRIP_EVT_0", 7, h, nil),
		"another value":        k.Valid("SCRIP_EVT_0", 7, with("Scrip-Format", "3"), payload),
		"a header too many":    k.Valid("SCRIP_EVT_0", 7, with("Scrip-Rebase", "3"), payload),
		"a value too many":     k.Valid("SCRIP_EVT_0", 7, with("Scrip-Owner", "o", "p"), payload),
		"a header too few":     k.Valid("SCRIP_EVT_0", 7, with("Scrip-Owner"), payload),
		"no seal":              k.Valid("SCRIP_EVT_0", 7, with(seal.Header), payload),
		"two seals":            k.Valid("SCRIP_EVT_0", 7, with(seal.Header, own, own), payload),
		"half a seal":          k.Valid("SCRIP_EVT_0", 7, with(seal.Header, own[:20]), payload),
		"another log":          seal.Derive([32]byte{1}, "another").Valid("SCRIP_EVT_0", 7, h, payload),
		"another code key":     seal.Derive([32]byte{2}, log).Valid("SCRIP_EVT_0", 7, h, payload),
		"a snapshot's name":    k.ValidSnapshot("lane-1", "abc", k.Snapshot("lane-0", "abc")),
		"a snapshot's hash":    k.ValidSnapshot("lane-0", "abd", k.Snapshot("lane-0", "abc")),
		"a snapshot's key":     k.ValidSnapshot("lane-0", "abc", seal.Derive([32]byte{2}, log).Snapshot("lane-0", "abc")),
		"an unsealed snapshot": k.ValidSnapshot("lane-0", "abc", ""),
	} {
		if valid {
			t.Errorf("%s: valid", name)
		}
	}
	if seal.WellFormed(with(seal.Header, "x")) || seal.WellFormed(with(seal.Header)) || seal.WellFormed(with(seal.Header, own[:42]+"!")) {
		t.Error("what is no seal looks like one")
	}
}

// TestTheTextOfAKeyChecksTheSameSeals, has neither the code key nor half of it, and is good for its own log only.
func TestTheTextOfAKeyChecksTheSameSeals(t *testing.T) {
	code := [32]byte{1, 2, 3}
	text := seal.Text(code, log)
	if strings.Contains(text, "010203") || strings.Contains(text, "AQID") {
		t.Errorf("the code key is in %s", text)
	}
	k, err := seal.Parse(text+"\n", log)
	if err != nil {
		t.Fatal(err)
	}
	made := seal.Derive(code, log)
	if k.Message("SCRIP_EVT_0", 7, header(), []byte("{}\n")) != made.Message("SCRIP_EVT_0", 7, header(), []byte("{}\n")) || k.Snapshot("lane-0", "abc") != made.Snapshot("lane-0", "abc") {
		t.Error("other seals than with the code key")
	}
	_, keys, _ := strings.Cut(text, ":")
	for _, bad := range []string{"", log, keys, log + ":", log + ":" + keys[:100], text + "A", "another" + ":" + keys, strings.Repeat("0", 64)} {
		if _, err := seal.Parse(bad, log); err == nil || strings.Contains(err.Error(), keys[:20]) {
			t.Errorf("%.50q: %v", bad, err)
		}
	}
}

func TestTheKeyIsNotPrinted(t *testing.T) {
	k := seal.Derive([32]byte{1}, log)
	for _, text := range []string{fmt.Sprint(k), fmt.Sprintf("%+v %#v", k, k), fmt.Sprintf("%+v", struct{ K *seal.Key }{k})} {
		if len(text) > 60 || strings.Contains(text, "[") {
			t.Errorf("printed: %s", text)
		}
	}
}

// cpuTime is what this process has used, whatever else runs on the machine.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkSeal is what sealing a step costs, and checking it costs each reader: 300 B is one claim, 115 KB 500 claims.
func BenchmarkSeal(b *testing.B) {
	k := seal.Derive([32]byte{1}, log)
	for _, size := range []int{0, 300, 8 << 10, 115 << 10, 460 << 10} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			h, payload := header(), make([]byte, size)
			b.SetBytes(int64(size))
			started := cpuTime()
			for b.Loop() {
				k.Message("SCRIP_EVT_0", 7, h, payload)
			}
			b.ReportMetric(float64(cpuTime()-started)/float64(b.N), "cpu-ns/op")
		})
	}
}
