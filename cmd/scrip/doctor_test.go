package main

import (
	"encoding/base32"
	"encoding/json"
	"hash/crc32"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/doctor"
)

// TestDoctor: beside a server that is well nothing fails.
func TestDoctor(t *testing.T) {
	p := shared(t)
	d := p.ready()
	got := p.run("doctor", "--as", d.NATSURL, "-o", "json")
	var rights, clocks int
	for line := range strings.Lines(got.out) {
		var f doctor.Finding
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		switch {
		case f.Level == doctor.Fail && (f.Check == "disk" || f.Check == "space" || f.Check == "memory"): // of the machine of the test
		case f.Level == doctor.Fail:
			t.Errorf("%+v", f)
		case f.Check == "rights":
			rights++
		case f.Check == "clock":
			clocks++
		}
	}
	if rights != 2 || clocks != 2 { // of the servers' user and of --as
		t.Errorf("%d findings about rights, %d about clocks\n%s", rights, clocks, got.out)
	}
	if got := p.run("doctor", "--nats", "nats://127.0.0.1:1"); got.code != cli.ExitFailed || !strings.Contains(got.out, "fail") || !strings.Contains(got.out, "--nats") {
		t.Errorf("exit %d\n%s%s", got.code, got.out, got.err)
	}
}

// TestDoctorAsAKey: a key alone names a user. What it may do is read from the table, and where it does not open NATS
// the mend is named. The key itself is not shown.
func TestDoctorAsAKey(t *testing.T) {
	p := shared(t)
	p.must("campaign", "create", "doctored", "--codes", "10")
	create := func(args ...string) string {
		got := p.run(append([]string{"access", "create"}, args...)...)
		if got.code != cli.ExitDone {
			t.Fatalf("%+v", got)
		}
		return strings.TrimSpace(got.out)
	}
	shop, ann, gone := create("doctor-shop", "--role", "producer", "--campaign", "doctored"), create("doctor-ann", "--role", "support"), create("doctor-gone", "--role", "producer")
	if got := p.run("access", "revoke", "doctor-gone"); got.code != cli.ExitDone {
		t.Fatalf("%+v", got)
	}
	at, err := url.Parse(p.ready().NATSURL)
	if err != nil {
		t.Fatal(err)
	}
	at.User = url.User(ann)
	// Of another log: zeroes with their checksum.
	sum := crc32.ChecksumIEEE(append([]byte("producer"), make([]byte, 27)...))
	unknown := "sk_producer_" + base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").EncodeToString(append(make([]byte, 27), byte(sum>>24), byte(sum>>16), byte(sum>>8)))
	for _, c := range []struct {
		args  []string
		level doctor.Level
		found string // of a finding about rights
		fix   string
	}{
		{[]string{"--as", shop}, doctor.OK, "of doctor-shop, role producer, campaigns doctored only", ""},
		{[]string{"--as", shop}, doctor.OK, "may: claim, redeem, rollback, coupon.validate, remind, unremind", ""},
		{[]string{"--as", shop}, doctor.OK, "the servers' user has the rights that servers need in account $G", ""},
		{[]string{"--as", ann}, doctor.OK, "may not: claim, redeem, remind, unremind", ""},
		{[]string{"--as", at.String()}, doctor.OK, "of doctor-ann, role support, all campaigns", ""},
		{[]string{"--as", gone}, doctor.Fail, "connecting as key", "it ended at"},
		{[]string{"--as", unknown}, doctor.Fail, "connecting as key 00000000", "this log has no such key"},
		{[]string{"--as", ann[:len(ann)-1]}, doctor.Fail, "this is no key of scrip", "scrip access create"},
		{[]string{"--as", ann, "--data", t.TempDir()}, doctor.Fail, "a key alone names no server", "--nats URL"},
	} {
		args := append([]string{"doctor", "-o", "json"}, c.args...)
		if !slices.Contains(c.args, "--data") {
			args = append(args, "--data", p.data)
		}
		got := scrip(t, nil, args...)
		var rights []doctor.Finding
		for line := range strings.Lines(got.out) {
			var f doctor.Finding
			if err := json.Unmarshal([]byte(line), &f); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if f.Check == "rights" {
				rights = append(rights, f)
			}
		}
		if !slices.ContainsFunc(rights, func(f doctor.Finding) bool {
			return f.Level == c.level && strings.Contains(f.What, c.found) && strings.Contains(f.Fix, c.fix)
		}) {
			t.Errorf("%v: no finding %s %q with fix %q in\n%s%s", c.args[1:], c.level, c.found, c.fix, got.out, got.err)
		}
		for _, key := range []string{shop, ann, gone} {
			if strings.Contains(got.out+got.err, key) {
				t.Errorf("a key is shown:\n%s%s", got.out, got.err)
			}
		}
	}
}
