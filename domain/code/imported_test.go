package code

import (
	"strings"
	"testing"
)

func TestNormalizeImported(t *testing.T) {
	for input, want := range map[string]string{
		"ABC":                         "ABC",
		"summer-10ab":                 "SUMMER-10AB",
		"  Summer_10 \t\r\n":          "SUMMER_10",
		"0O1I":                        "0O1I",
		"-a-":                         "-A-",
		"___":                         "___",
		strings.Repeat("x", 64):       strings.Repeat("X", 64),
		strings.Repeat("-", 63) + "7": strings.Repeat("-", 63) + "7",
	} {
		if got, err := NormalizeImported(input); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", input, got, err, want)
		}
	}
}

// Each refusal names the code, what is wrong with it and the mend: it is read beside a CSV of a million rows.
func TestNormalizeImportedRefuses(t *testing.T) {
	for input, want := range map[string][]string{
		"":                        {"empty", "3 to 64"},
		" \t\r\n ":                {"empty"},
		"ab":                      {`"ab"`, "2 characters", "3 to 64"},
		strings.Repeat("x", 65):   {"65 characters"},
		strings.Repeat("é", 9999): {"9999 characters", "…"},
		"AB CD":                   {`"AB CD"`, "space at position 3", "remove it or write a hyphen"},
		"AB\tCD":                  {`'\t' at position 3`},
		"AB\x00CD":                {`'\x00' at position 3`},
		"äb+cd":                   {"'ä' at position 1"},
		"büro+":                   {"'ü' at position 2"},
		"ab+cd":                   {"'+' at position 3", "A-Z, 0-9, - and _"},
		"straſe":                  {"'ſ' at position 5"}, // whose upper case is S
		"\ufeffABC":               {"position 1"},        // a byte-order mark that was not removed
		"ABC\u00a0":               {"position 4"},        // a no-break space
		"abc\xff":                 {"position 4"},
		"---":                     {"only hyphens", "add a letter"},
	} {
		got, err := NormalizeImported(input)
		if err == nil || got != "" {
			t.Errorf("%.40q: got %q, %v", input, got, err)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%.40q: error %q does not have %q", input, err, part)
			}
		}
		if len(err.Error()) > 1_000 {
			t.Errorf("%.40q: error of %d bytes", input, len(err.Error()))
		}
	}
}

func TestFoldImportedFindsWhatAPersonTypes(t *testing.T) {
	kept, err := NormalizeImported("SUMMER-10AB")
	if err != nil {
		t.Fatal(err)
	}
	for _, typed := range []string{"SUMMER-10AB", "summer 10-ab", " summer10ab ", "s u m m e r 1 0 a b", "SUMMER10-AB"} {
		if FoldImported(typed) != FoldImported(kept) {
			t.Errorf("%q folds to %q, %q to %q", typed, FoldImported(typed), kept, FoldImported(kept))
		}
	}
	for _, typed := range []string{"", "SUMMER_10AB", "SUMMER-1OAB", "SUMMER-10AB\n", strings.Repeat(" ", 128) + kept} {
		if FoldImported(typed) == FoldImported(kept) {
			t.Errorf("%.40q was taken for %s", typed, kept)
		}
	}
	if n := testing.AllocsPerRun(100, func() { FoldImported("SUMMER10AB") }); n != 0 {
		t.Errorf("folding what is folded: %v allocations, want 0", n)
	}
}

func FuzzNormalizeImported(f *testing.F) {
	for _, s := range []string{"abc", " Summer-10_ab\r\n", "A B C", "---", "ſſſ", "\ufeffabc", strings.Repeat("z", 65), "ab\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		once, err := NormalizeImported(s)
		if err != nil {
			if once != "" {
				t.Fatalf("%q: %q beside the error %v", s, once, err)
			}
			return
		}
		if twice, err := NormalizeImported(once); err != nil || twice != once {
			t.Fatalf("%q: %q, then %q, %v", s, once, twice, err)
		}
		if len(once) < MinImportedLen || len(once) > MaxImportedLen || strings.Trim(once, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
			t.Fatalf("%q: %q is no imported code", s, once)
		}
		key := FoldImported(once)
		if key == "" || FoldImported(key) != key {
			t.Fatalf("%q folds to %q, then to %q", once, key, FoldImported(key))
		}
		if typed := strings.ToLower(strings.ReplaceAll(once, "-", " ")); FoldImported(typed) != key {
			t.Fatalf("%q folds to %q, %q to %q", typed, FoldImported(typed), once, key)
		}
	})
}

func TestValidPrefix(t *testing.T) {
	for _, ok := range []string{"", "SUMMER", "summer", "A_1", "0123456789ABCDEF", "IO01"} {
		if err := ValidPrefix(ok); err != nil {
			t.Errorf("%q: %v", ok, err)
		}
	}
	for bad, want := range map[string]string{
		"0123456789ABCDEFG":     "17 characters",
		"A-B":                   "'-' at position 2",
		"A B":                   "' ' at position 2",
		"ÄB":                    "'Ä' at position 1",
		"ſale":                  "'ſ' at position 1",
		"AB\n":                  `'\n' at position 3`,
		strings.Repeat("ä", 16): "'ä' at position 1",
	} {
		if err := ValidPrefix(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v does not have %q", bad, err, want)
		}
	}
}
