package cli

import "runtime/debug"

// Build is what a release's linker sets in a program: its version and its commit. Without them the commit in the build
// information is used.
type Build struct{ Version, Commit string }

// Revision is the commit that the program was built from, and whether files were changed.
func (b Build) Revision() (revision string, changed bool) {
	if b.Commit != "" {
		return b.Commit, false
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", false
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			changed = s.Value == "true"
		}
	}
	return revision, changed
}

// String is the version for people.
func (b Build) String() string {
	revision, changed := b.Revision()
	switch {
	case b.Version != "":
		return b.Version
	case len(revision) < 12:
		if info, ok := debug.ReadBuildInfo(); ok {
			return info.Main.Version
		}
		return "unknown"
	case changed:
		return revision[:12] + "+changes"
	}
	return revision[:12]
}
