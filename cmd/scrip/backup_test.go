package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// done runs a command that has to succeed and returns its JSON.
func done(t *testing.T, env []string, args ...string) map[string]any {
	t.Helper()
	got := scrip(t, env, append(args, "-o", "json")...)
	var v map[string]any
	if err := json.Unmarshal([]byte(got.out), &v); got.code != cli.ExitDone || err != nil {
		t.Fatalf("scrip %v: %+v (%v)", args, got, err)
	}
	return v
}

// failed runs a command that has to fail with exit code 1 and a text.
func failed(t *testing.T, env []string, want string, args ...string) {
	t.Helper()
	if got := scrip(t, env, args...); got.code != cli.ExitFailed || !strings.Contains(got.err, want) || got.out != "" {
		t.Errorf("scrip %v: %+v, want exit 1 and %q", args, got, want)
	}
}

// TestFromOneDataDirectoryToAnother: a server is backed up while it serves, and restored into a new data directory. There
// the same claim is a repeat with the same code, and the code can be redeemed.
func TestFromOneDataDirectoryToAnother(t *testing.T) {
	t.Parallel()
	old := serve(t, dataDir(t), "--roles", "lanes,api")
	old.must("campaign", "create", "summer", "--codes", "100")
	first := old.must("claim", "summer", "--customer", "alice", "--id", "one")
	for i := range 20 {
		old.must("claim", "summer", "--customer", fmt.Sprint(i))
	}
	old.must("config", "set", "reminder.pause.summer", "true", "--by", "Ann, on call")
	dir := filepath.Join(old.data, "backups", "first")
	took := old.must("backup", "first")
	if took["dir"] != dir || took["code_key"] != true || took["lanes"] != 4.0 || took["streams"] != 16.0 || took["messages"].(float64) < 40 {
		t.Errorf("backup: %v", took)
	}
	if info, err := os.Stat(filepath.Join(dir, "code.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key in the backup: %v %v", info, err)
	}
	sums := exec.Command("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
	sums.Dir = dir
	if out, err := sums.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v %s", err, out)
	}
	failed(t, nil, "exists already", "backup", "first", "--data", old.data)
	failed(t, nil, "is in use by process", "restore", dir, "--data", old.data)
	old.must("claim", "summer", "--customer", "after the backup")
	keyless := filepath.Join(old.data, "backups", "keyless")
	if took := old.must("backup", "keyless", "--without-key"); took["code_key"] != false {
		t.Errorf("backup without key: %v", took)
	}
	if _, err := os.Stat(filepath.Join(keyless, "code.key")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the key is in it: %v", err)
	}
	old.signal(syscall.SIGTERM)
	old.exit()
	failed(t, nil, "no server runs", "backup", "b", "--data", old.data)
	failed(t, nil, "has a log already", "restore", dir, "--data", old.data)

	data := filepath.Join(dataDir(t), "data")
	restored := done(t, nil, "restore", dir, "--data", data)
	if restored["to"] != data || restored["dir"] != dir {
		t.Errorf("restored from %s to %s, printed %v", dir, data, restored)
	}
	if restored["log"] != took["log"] || restored["messages"] != took["messages"] {
		t.Errorf("took %v, restored %v", took, restored)
	}
	if info, err := os.Stat(filepath.Join(data, "code.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key in the data directory: %v %v", info, err)
	}
	p := serve(t, data, "--roles", "lanes,api")
	if v := p.must("config", "get", "reminder.pause.summer"); v["value"] != "true" || v["by"] != "local:Ann, on call" {
		t.Errorf("what was paused: %v", v)
	}
	again := p.must("claim", "summer", "--customer", "alice", "--id", "one")
	if again["code"] != first["code"] || again["repeat"] != true {
		t.Errorf("%v became %v", first, again)
	}
	if r := p.must("redeem", first["code"].(string), "--order", "4711"); r["status"] != "redeemed" {
		t.Errorf("redeem: %v", r)
	}
	if next := p.must("claim", "summer", "--customer", "bob"); next["n"] != 22.0 {
		t.Errorf("the next claim: %v", next)
	}
	if strings.Contains(p.log.String(), "level=ERROR") || strings.Contains(p.log.String(), "level=WARN") {
		t.Errorf("trouble after the restore:\n%s", p.log.String())
	}

	// Another log's key is not that of the person who expects this backup. The seal of a keyless one cannot be checked without a key.
	other := []string{"SCRIP_CODE_KEY=" + strings.Repeat("ab", 32)}
	bare := filepath.Join(dataDir(t), "data")
	failed(t, other, "--unsealed", "restore", dir, "--data", bare)
	failed(t, nil, "--unsealed", "restore", keyless, "--data", bare)
	unsealed := filepath.Join(t.TempDir(), "unsealed")
	if err := os.CopyFS(unsealed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(unsealed, "SHA256SUMS.seal")); err != nil {
		t.Fatal(err)
	}
	failed(t, nil, "no SHA256SUMS.seal", "restore", unsealed, "--data", bare)
	failed(t, []string{"SCRIP_SEAL_KEY=abc"}, "--unsealed", "restore", dir, "--data", bare)
	if _, err := os.Stat(bare); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a refused restore left files: %v", err)
	}
	done(t, nil, "restore", unsealed, "--data", filepath.Join(t.TempDir(), "data"), "--unsealed")

	// Without the key in the backup it has to come from elsewhere, and must be the right one.
	if got := scrip(t, nil, "restore", keyless, "--data", bare, "--unsealed"); got.code != cli.ExitDone || !strings.Contains(got.err, "bring the code key") {
		t.Errorf("restore without key: %+v", got)
	}
	if p := launch(t, bare, "--roles", "lanes"); p.exit() != cli.ExitFailed || !strings.Contains(p.log.String(), "code.key") {
		t.Errorf("a server without the key:\n%s", p.log.String())
	}
	failed(t, other, "was created with", "restore", keyless, "--data", filepath.Join(t.TempDir(), "other"), "--unsealed")
	given := filepath.Join(t.TempDir(), "given")
	key, err := os.ReadFile(filepath.Join(old.data, "code.key"))
	if err != nil {
		t.Fatal(err)
	}
	done(t, []string{"SCRIP_CODE_KEY=" + strings.TrimSpace(string(key))}, "restore", keyless, "--data", given)
	if put, err := os.ReadFile(filepath.Join(given, "code.key")); err != nil || string(put) != string(key) {
		t.Errorf("the key given: %q %v", put, err)
	}
}

// TestBackupKilled: a backup goes on without its caller, and is refused twice at a time. kill -9 of its server leaves nothing under
// the final name; the next one removes its files.
func TestBackupKilled(t *testing.T) {
	t.Parallel()
	all := t.TempDir()
	p := serve(t, dataDir(t), "--roles", "lanes,api", "--backups", all)
	p.must("campaign", "create", "summer", "--codes", "100")
	p.must("claim", "summer", "--customer", "alice")
	dir := filepath.Join(all, "b")
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	// Another backup has lane 0, so this one waits there, in the midst.
	if _, err := p.nats().Publish(t.Context(), "$KV.SCRIP_LEASE.hold.purge-1", []byte(`{"by":"the test"}`)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "backup", "b", "--data", p.data)
	output := new(streamtest.Buffer)
	cmd.Stderr = output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wait(t, "a lane that is copied", startLimit, func() bool {
		_, err := os.Stat(filepath.Join(dir+".incomplete", "SCRIP_CMD_0.snapshot"))
		return err == nil
	})
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != cli.ExitFailed || !strings.Contains(output.String(), "goes on; see scrip job show backup-") {
		t.Errorf("after Ctrl-C: %v, %s", err, output.String())
	}
	p.expect(cli.ExitDone, "running", "job", "list")
	p.expect(cli.ExitRefused, "of this kind runs already, started by local:", "backup", "other")
	p.signal(syscall.SIGKILL)
	p.exit()
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is something under the final name: %v", err)
	}
	failed(t, nil, "interrupted", "restore", dir+".incomplete", "--data", t.TempDir())
	p = serve(t, p.data, "--roles", "lanes,api", "--backups", all)
	wait(t, "the dead job is failed", startLimit, func() bool { return strings.Contains(p.run("job", "list").out, "the server that ran it ended") })
	kv, err := p.nats().KeyValue(t.Context(), "SCRIP_LEASE")
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Purge(t.Context(), "hold.purge-1"); err != nil {
		t.Fatal(err)
	}
	p.must("backup", "b")
	if _, err := os.Stat(dir + ".incomplete"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what the dead one left: %v", err)
	}
}

// TestBackupUsage: names are no paths; a restore is refused where it has no place.
func TestBackupUsage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "b")
	p := shared(t)
	for _, name := range []string{dir, "../b", ".b", "b.incomplete"} {
		p.expect(cli.ExitRefused, "name: must be 1 to 128 of", "backup", name)
	}
	if got := scrip(t, nil, "backup", "--help"); got.code != cli.ExitDone || !strings.Contains(got.out, "scrip_meta.dead_letter") {
		t.Errorf("help does not mention that the state of dead letters is not in a backup: %+v", got)
	}
	if got := scrip(t, nil, "backup"); got.code != cli.ExitUsage || !strings.Contains(got.err, "needs NAME") {
		t.Errorf("no name: %+v", got)
	}
	failed(t, nil, "there is no backup at "+dir+";", "restore", dir, "--data", t.TempDir())
	for want, args := range map[string][]string{"not both": {"--nats", "nats://127.0.0.1:1", "--data", t.TempDir()}, "--nats": {"--data", t.TempDir(), "--replicas", "3"}} {
		if got := scrip(t, nil, append([]string{"restore", dir}, args...)...); got.code != cli.ExitUsage || !strings.Contains(got.err, want) {
			t.Errorf("restore %v: %+v", args, got)
		}
	}
}
