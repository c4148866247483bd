package wire

// failer is what testing.T and rapid.T have in common.
type failer interface {
	Fatal(...any)
	Fatalf(string, ...any)
}

// start is 2026-11-27T00:00:00Z.
const start = Instant(1795737600 * 1e6)
