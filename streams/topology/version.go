package topology

import "fmt"

// TestedServer is the release of nats-server that scrip is tested with.
const TestedServer = "2.15"

// The oldest nats-server that has what the log needs: a bucket's markers with a TTL, for leases.
const minServerMajor, minServerMinor = 2, 11

// CheckServer refuses the version of a nats-server that is too old. One that is not known, or not understood, is accepted:
// what is missing then fails where it is used.
func CheckServer(version string) error {
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n < 2 {
		return nil
	}
	if major > minServerMajor || major == minServerMajor && minor >= minServerMinor {
		return nil
	}
	return fmt.Errorf("the NATS server has version %s; the log needs %d.%d or later, and is tested with %s: upgrade it", version, minServerMajor, minServerMinor, TestedServer)
}
