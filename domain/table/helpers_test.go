package table

// failer is what testing.T and rapid.T have in common.
type failer interface {
	Fatal(...any)
	Fatalf(string, ...any)
}
