package main

import (
	"encoding/base32"
	"encoding/json"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/doctor"
)

// diagnosed runs the doctor and returns its findings.
func diagnosed(t *testing.T, args ...string) (all []doctor.Finding, text string) {
	t.Helper()
	got := scrip(t, nil, append([]string{"doctor", "-o", "json"}, args...)...)
	for line := range strings.Lines(got.out) {
		var f doctor.Finding
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, f)
	}
	return all, got.out + got.err
}

// TestDoctor: beside a server that is well nothing fails. A key alone names a user: what it may do is read from the table, and where
// it does not open NATS the mend is named. The key itself is not shown.
func TestDoctor(t *testing.T) {
	p := shared(t)
	all, text := diagnosed(t, "--data", p.Data, "--as", p.ready().NATSURL)
	count := map[string]int{}
	for _, f := range all {
		count[f.Check]++
		if f.Level == doctor.Fail && f.Check != "disk" && f.Check != "space" && f.Check != "memory" { // those are of the machine of the test
			t.Errorf("%+v", f)
		}
	}
	if count["rights"] != 2 || count["clock"] != 2 { // of the servers' user and of --as
		t.Errorf("%v\n%s", count, text)
	}
	p.expect(cli.ExitFailed, "--nats", "doctor", "--nats", "nats://127.0.0.1:1")

	p.must("campaign", "create", "doctored", "--codes", "10")
	create := func(args ...string) string {
		return p.must(append([]string{"access", "create"}, args...)...)["secret"].(string)
	}
	shop, gone := create("doctor-shop", "--role", "producer", "--campaign", "doctored"), create("doctor-gone", "--role", "producer")
	p.must("access", "revoke", "doctor-gone")
	_, annURL := p.keyURL("doctor-ann", "support")
	_, ann, _ := strings.Cut(strings.SplitN(annURL, "@", 2)[0], "//")
	// Of another log: zeroes with their checksum.
	sum := crc32.ChecksumIEEE(append([]byte("producer"), make([]byte, 27)...))
	unknown := "sk_producer_" + base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").EncodeToString(append(make([]byte, 27), byte(sum>>24), byte(sum>>16), byte(sum>>8)))
	for _, c := range []struct {
		as, data string
		level    doctor.Level
		found    string // of a finding about rights
		fix      string
	}{
		{shop, p.Data, doctor.OK, "of doctor-shop, role producer, campaigns doctored only", ""},
		{shop, p.Data, doctor.OK, "may: claim, redeem, rollback, coupon.validate, remind, unremind", ""},
		{shop, p.Data, doctor.OK, "the servers' user has the rights that servers need in account $G", ""},
		{ann, p.Data, doctor.OK, "may not: claim, redeem, remind, unremind", ""},
		{annURL, p.Data, doctor.OK, "of doctor-ann, role support, all campaigns", ""},
		{gone, p.Data, doctor.Fail, "connecting as key", "it ended at"},
		{unknown, p.Data, doctor.Fail, "connecting as key 00000000", "this log has no such key"},
		{ann[:len(ann)-1], p.Data, doctor.Fail, "this is no key of scrip", "scrip access create"},
		{ann, t.TempDir(), doctor.Fail, "a key alone names no server", "--nats URL"},
	} {
		all, text := diagnosed(t, "--as", c.as, "--data", c.data)
		if !slices.ContainsFunc(all, func(f doctor.Finding) bool {
			return f.Check == "rights" && f.Level == c.level && strings.Contains(f.What, c.found) && strings.Contains(f.Fix, c.fix)
		}) {
			t.Errorf("--as %s: no finding %s %q with fix %q in\n%s", c.as, c.level, c.found, c.fix, text)
		}
		for _, key := range []string{shop, ann, gone} {
			if strings.Contains(text, key) {
				t.Errorf("a key is shown:\n%s", text)
			}
		}
	}
}
