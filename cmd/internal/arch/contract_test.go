package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// contract is the text of CONTRACT.md, each white space a single blank.
func contract(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root(t), "domain/CONTRACT.md"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(raw)), " ")
}

var headerForm = regexp.MustCompile(`^Scrip-[A-Z][A-Za-z-]+$`)

// TestTheContractNamesHeaders: every Scrip- header in the code, wherever it is defined.
func TestTheContractNamesHeaders(t *testing.T) {
	page, found := contract(t), 0
	inspect(t, func(path string, n ast.Node) {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return
		}
		if name, err := strconv.Unquote(lit.Value); err == nil && headerForm.MatchString(name) {
			found++
			if !strings.Contains(page, "`"+name+"`") {
				t.Errorf("%s: header %s is not in CONTRACT.md", path, name)
			}
		}
	})
	if found < 12 {
		t.Errorf("%d headers were found in the code", found)
	}
}

// TestTheContractNamesSubjects: the log's subjects, its streams, its formats, and the settings.
func TestTheContractNamesSubjects(t *testing.T) {
	page := contract(t)
	lane := func(s string) string { return strings.Replace(s, "7", "<lane>", 1) }
	want := []string{
		"scrip.cmd.<campaign>", "scrip.admin.<campaign>",
		lane(topology.LaneCmdFor(7, "<campaign>")), lane(topology.LaneAdminFor(7, "<campaign>")),
		lane(topology.LaneCmd(7)), lane(topology.LaneShop(7)), lane(topology.LaneDue(7)),
		lane(topology.Evt(7)), lane(topology.Rmd(7)),
		lane(topology.CmdStream(7)), lane(topology.EvtStream(7)), lane(topology.RmdStream(7)),
	}
	for _, d := range settings.Describe() {
		want = append(want, d.Name)
	}
	for _, name := range want {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("%s is not in CONTRACT.md", name)
		}
	}
	for _, text := range []string{
		fmt.Sprintf("log format %d", topology.Format),
		fmt.Sprintf("backup format %d", backup.Format),
		fmt.Sprintf("(1 to %d,%03d) is fixed", topology.MaxLanes/1000, topology.MaxLanes%1000),
	} {
		if !strings.Contains(page, text) {
			t.Errorf("CONTRACT.md lacks %q", text)
		}
	}
}
