package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestTheAccountsFileIsCurrent: docker/nats/accounts.conf is what `scrip nats config` prints.
func TestTheAccountsFileIsCurrent(t *testing.T) {
	have, err := os.ReadFile("../../docker/nats/accounts.conf")
	streamtest.Must(t, err)
	if string(have) != natsauth.File(16) {
		t.Error("it is not: go run ./cmd/scrip nats config --lanes 16 > docker/nats/accounts.conf")
	}
}

func TestNATSCommands(t *testing.T) {
	const key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	for _, test := range []struct {
		args []string
		env  map[string]string
		code int
		want string
	}{
		{[]string{"nats", "config", "--lanes", "7"}, nil, cli.ExitDone, "partition(7,1)"},
		{[]string{"nats", "config"}, nil, cli.ExitUsage, "--lanes must be from 1 to 1024"},
		{[]string{"nats", "config", "--lanes", "1025"}, nil, cli.ExitUsage, "--lanes must be from 1 to 1024"},
		{[]string{"nats", "env"}, map[string]string{"SCRIP_CODE_KEY": key}, cli.ExitDone, "NATS_ISSUER=ADMMAK"},
		{[]string{"nats", "env", "-o", "json"}, map[string]string{"SCRIP_CODE_KEY": key}, cli.ExitDone, `"NATS_ROUTES_PASSWORD":"r`},
		{[]string{"nats", "env"}, map[string]string{"SCRIP_CODE_KEY": "zz"}, cli.ExitFailed, "SCRIP_CODE_KEY"},
		{[]string{"nats", "env", "--data", t.TempDir()}, nil, cli.ExitFailed, "there is no code key"},
	} {
		var out, errs bytes.Buffer
		m := &Main{Out: &out, Err: &errs, Env: func(name string) (string, bool) { v, ok := test.env[name]; return v, ok }}
		if code := m.Run(t.Context(), test.args); code != test.code || !strings.Contains(out.String()+errs.String(), test.want) {
			t.Errorf("%v: exit code %d, %s%s", test.args, code, out.String(), errs.String())
		}
	}
}
