package main

import (
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
	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// absent checks that there is nothing at a path.
func absent(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is there: %v", path, err)
	}
}

// TestFromOneDataDirectoryToAnother: a server is backed up while it serves, and restored into a new data directory. There
// the same claim is a repeat with the same code, and the code can be redeemed.
func TestFromOneDataDirectoryToAnother(t *testing.T) {
	t.Parallel()
	old := serve(t, projtest.Dir(t), "--roles", "lanes,api")
	old.must("campaign", "create", "summer", "--codes", "100")
	first := old.must("claim", "summer", "--customer", "alice", "--id", "one")
	for i := range 20 {
		old.must("claim", "summer", "--customer", fmt.Sprint(i))
	}
	old.must("config", "set", "reminder.pause.summer", "true", "--by", "Ann, on call")
	status := func(p *process) any { return p.must("status")["backup"] }
	if b := status(old); b != nil {
		t.Errorf("the last backup before one was taken: %v", b)
	}
	old.expect(cli.ExitDone, "never; see scrip backup", "status")
	dir, keyless := filepath.Join(old.Data, "backups", "first"), filepath.Join(old.Data, "backups", "keyless")
	took := old.must("backup", "first")
	if took["dir"] != dir || took["code_key"] != true || took["lanes"] != 4.0 || took["streams"] != 16.0 || took["messages"].(float64) < 40 {
		t.Errorf("backup: %v", took)
	}
	if b, ok := status(old).(map[string]any); !ok || b["dir"] != dir || b["server"] != took["server"] || b["bytes"] != took["bytes"] || b["begun"] != took["begun"] || b["age_seconds"].(float64) > 600 {
		t.Errorf("the last backup: %v", b)
	}
	sums := exec.Command("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
	sums.Dir = dir
	if out, err := sums.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v %s", err, out)
	}
	failed(t, nil, "exists already", "backup", "first", "--data", old.Data)
	failed(t, nil, "is in use by process", "restore", dir, "--data", old.Data)
	old.must("claim", "summer", "--customer", "after the backup")
	old.expect(cli.ExitDone, "not in it; its fingerprint is ", "backup", "keyless", "--without-key")
	absent(t, filepath.Join(keyless, "code.key"))
	old.stop(syscall.SIGTERM)
	failed(t, nil, "no server runs", "backup", "b", "--data", old.Data)
	failed(t, nil, "has a log already", "restore", dir, "--data", old.Data)

	data := filepath.Join(projtest.Dir(t), "data")
	restored := done(t, nil, "restore", dir, "--data", data)
	if restored["to"] != data || restored["dir"] != dir || restored["log"] != took["log"] || restored["messages"] != took["messages"] {
		t.Errorf("took %v, restored %v", took, restored)
	}
	for _, key := range []string{filepath.Join(dir, "code.key"), filepath.Join(data, "code.key")} {
		if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", key, info, err)
		}
	}
	p := serve(t, data, "--roles", "lanes,api")
	if v := p.must("config", "get", "reminder.pause.summer"); v["value"] != true || v["by"] != "local:Ann, on call" {
		t.Errorf("what was paused: %v", v)
	}
	if b, ok := status(p).(map[string]any); !ok || b["dir"] != dir || b["begun"] != took["begun"] || b["restored"] != true {
		t.Errorf("the last backup of the restored log: %v", b)
	}
	p.expect(cli.ExitDone, "the log was restored from it", "status")
	if again := p.must("claim", "summer", "--customer", "alice", "--id", "one"); again["code"] != first["code"] || again["repeat"] != true {
		t.Errorf("%v became %v", first, again)
	}
	if r := p.must("redeem", first["code"].(string), "--order", "4711"); r["status"] != "redeemed" {
		t.Errorf("redeem: %v", r)
	}
	if next := p.must("claim", "summer", "--customer", "bob"); next["n"] != 22.0 {
		t.Errorf("the next claim: %v", next)
	}
	if strings.Contains(p.Output(), "level=ERROR") || strings.Contains(p.Output(), "level=WARN") {
		t.Errorf("trouble after the restore:\n%s", p.Output())
	}

	// Another log's key is not that of the person who expects this backup.
	other := []string{"SCRIP_CODE_KEY=" + strings.Repeat("ab", 32)}
	bare, unsealed := filepath.Join(projtest.Dir(t), "data"), filepath.Join(t.TempDir(), "unsealed")
	streamtest.Must(t, errors.Join(os.CopyFS(unsealed, os.DirFS(dir)), os.Remove(filepath.Join(unsealed, "SHA256SUMS.seal"))))
	failed(t, other, "--unsealed", "restore", dir, "--data", bare)
	failed(t, nil, "no SHA256SUMS.seal", "restore", unsealed, "--data", bare)
	failed(t, []string{"SCRIP_SEAL_KEY=abc"}, "--unsealed", "restore", dir, "--data", bare)
	absent(t, bare)
	done(t, nil, "restore", unsealed, "--data", filepath.Join(t.TempDir(), "data"), "--unsealed")

	// Without the key in the backup it has to come from elsewhere, and must be the right one.
	fingerprint := "whose fingerprint is " + took["key_fingerprint"].(string)
	failed(t, nil, fingerprint, "restore", keyless, "--data", bare)
	failed(t, other, fingerprint, "restore", keyless, "--data", bare, "--unsealed")
	absent(t, bare)
	given := filepath.Join(t.TempDir(), "given")
	key, err := os.ReadFile(filepath.Join(old.Data, "code.key"))
	streamtest.Must(t, err)
	done(t, []string{"SCRIP_CODE_KEY=" + strings.TrimSpace(string(key))}, "restore", keyless, "--data", given)
	if put, err := os.ReadFile(filepath.Join(given, "code.key")); err != nil || string(put) != string(key) {
		t.Errorf("the key given: %q %v", put, err)
	}
}

// TestBackupKilled: a backup goes on without its caller, until it is stopped; then nothing is left of it. kill -9 of its server leaves
// nothing under the final name; the next one removes its files. That one runs at a time, and how the dead one ends, is shown by package
// ops.
func TestBackupKilled(t *testing.T) {
	t.Parallel()
	all := t.TempDir()
	dir := filepath.Join(all, "b")
	p := serve(t, projtest.Dir(t), "--roles", "lanes,api", "--backups", all)
	// Another backup has lane 0, so this one waits there, in the midst.
	if _, err := p.nats().Publish(t.Context(), "$KV.SCRIP_LEASE.hold.purge-1", []byte(`{"by":"the test"}`)); err != nil {
		t.Fatal(err)
	}
	output := new(streamtest.Buffer)
	cmd := exec.Command(e2e.Binary(), "backup", "b", "--data", p.Data)
	cmd.Stderr = output
	streamtest.Must(t, cmd.Start())
	streamtest.Eventually(t, "a lane that is copied", func() bool {
		_, err := os.Stat(filepath.Join(dir+".incomplete", "SCRIP_CMD_0.snapshot.age"))
		return err == nil
	})
	_ = cmd.Process.Signal(syscall.SIGINT)
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != cli.ExitFailed || !strings.Contains(output.String(), "goes on; see scrip job show backup-") {
		t.Errorf("after Ctrl-C: %v, %s", err, output.String())
	}
	p.expect(cli.ExitDone, "running", "job", "list")
	p.expect(cli.ExitRefused, "of this kind runs already, started by local:", "backup", "other")
	// It is stopped, by the name in what Ctrl-C printed, and leaves nothing.
	_, id, _ := strings.Cut(output.String(), "scrip job stop ")
	id = strings.TrimSpace(id)
	p.expect(cli.ExitDone, "stop requested by local:", "job", "stop", id)
	streamtest.Eventually(t, "the job is stopped", func() bool { return strings.Contains(p.run("job", "list").out, "stopped by local:") })
	p.expect(cli.ExitFailed, "stopped by local:", "job", "show", id)
	p.expect(cli.ExitDone, "is stopped: ", "job", "stop", id)
	absent(t, dir)
	absent(t, dir+".incomplete")
	// The next one meets the death of its server.
	cmd = exec.Command(e2e.Binary(), "backup", "b", "--data", p.Data)
	streamtest.Must(t, cmd.Start())
	streamtest.Eventually(t, "a lane that is copied again", func() bool {
		_, err := os.Stat(filepath.Join(dir+".incomplete", "SCRIP_CMD_0.snapshot.age"))
		return err == nil
	})
	_ = cmd.Process.Signal(syscall.SIGINT)
	_ = cmd.Wait()
	p.Kill()
	absent(t, dir)
	failed(t, nil, "interrupted", "restore", dir+".incomplete", "--data", t.TempDir())
	p = serve(t, p.Data, "--roles", "lanes,api", "--backups", all)
	streamtest.Eventually(t, "the dead job is failed", func() bool { return strings.Contains(p.run("job", "list").out, "the server that ran it ended") })
	kv, err := p.nats().KeyValue(t.Context(), "SCRIP_LEASE")
	if err == nil {
		err = kv.Purge(t.Context(), "hold.purge-1")
	}
	streamtest.Must(t, err)
	p.must("backup", "b")
	absent(t, dir+".incomplete")
	// Names are no paths.
	for _, name := range []string{dir, "../b", ".b", "b.incomplete"} {
		p.expect(cli.ExitRefused, "name: must be 1 to 128 of", "backup", name)
	}
	nowhere := filepath.Join(t.TempDir(), "b")
	failed(t, nil, "there is no backup at "+nowhere+";", "restore", nowhere, "--data", t.TempDir())
}
