package wire

import "testing"

func TestZones(t *testing.T) {
	for name, want := range map[string]bool{
		"Europe/Berlin": true, "UTC": true, "America/Argentina/Buenos_Aires": true, "Etc/GMT+12": true,
		"": false, "Local": false, "Europe/Berln": false, "../etc/passwd": false, "/etc/localtime": false, "Europe/": false, "Europe": false, "a\x00b": false,
	} {
		if _, ok := Zone(name); ok != want {
			t.Errorf("Zone(%q) is %t, want %t", name, ok, want)
		}
	}
}
