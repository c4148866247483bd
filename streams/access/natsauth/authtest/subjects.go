package authtest

import (
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// servers is the name of the servers' user in lists, whatever it is in a test.
const servers = "servers"

// Placeholders of a subject in a list.
const (
	aLane     = "{lane}"
	aCampaign = "{campaign}"
	aNumber   = "{n}"
	aName     = "{x}"
)

// kept is how many tokens of a subject say what it is, by its first ones; what follows is a name. Subjects that are not here keep
// all tokens.
var kept = []struct {
	prefix string
	tokens int
}{
	{"_INBOX", 1}, {"_R_", 1}, {"$KV.", 2}, {"$O.", 3}, {"$JS.API.DIRECT.GET.", 5}, {"$JS.ACK.", 3}, {"$JS.FC.", 3}, {"$SYS._INBOX.", 2},
	{"scrip.push.dead.", 3}, {"scrip.push.wait.", 3},
}

var (
	laneStream = regexp.MustCompile(`SCRIP_(CMD|EVT|RMD)_\d\b`) // of a lane that a tour has
	laneOf     = regexp.MustCompile(`\bscrip\.(lane|evt|rmd)\.\d\b`)
	stream     = regexp.MustCompile(`\b(KV|OBJ|SCRIP)_[A-Z_]+[A-Z](_\{lane\})?`)
	number     = regexp.MustCompile(`^\d+$`)
	// word is a token that scrip or NATS has made up; others are names and random.
	word = regexp.MustCompile(`^([a-z_]+|[A-Z$_]+|_INBOX_[a-z]+|(KV|OBJ|SCRIP)_[A-Z_]+|SCRIP_(CMD|EVT|RMD)_\{lane\}|JS|\{lane\}|\*|>)$`)
)

// Subjects are the kinds of what was recorded, as "USER publish SUBJECT": lanes, campaigns, numbers and names are placeholders.
func Subjects(all []streamtest.Recorded) map[string]bool {
	kinds := map[string]bool{}
	for _, one := range all {
		if _, err := access.ParseRole(one.User); err != nil {
			one.User = servers
		}
		kinds[one.User+" "+one.Does+" "+Kind(one.Subject)] = true
	}
	return kinds
}

// Kind is a subject with placeholders.
func Kind(subject string) string {
	subject = laneStream.ReplaceAllString(subject, "SCRIP_${1}_"+aLane)
	subject = laneOf.ReplaceAllString(subject, "scrip.$1."+aLane)
	tokens := strings.Split(subject, ".")
	for _, k := range kept {
		if strings.HasPrefix(subject, k.prefix) && len(tokens) > k.tokens {
			last := tokens[len(tokens)-1]
			tokens = append(slices.Clone(tokens[:k.tokens]), aName)
			if last == "*" || last == ">" {
				tokens[k.tokens] = last
			}
		}
	}
	for i, token := range tokens {
		switch {
		case number.MatchString(token):
			tokens[i] = aNumber
		case strings.HasPrefix(subject, "$JS.API.CONSUMER.") && slices.Index(tokens, streamOf(subject))+1 == i:
			tokens[i] = aName
		case i == len(tokens)-1 && slices.Contains(campaigns, token):
			tokens[i] = aCampaign
		case !word.MatchString(token):
			tokens[i] = aName
		}
	}
	return strings.Join(tokens, ".")
}

// streamOf is the stream of a request about consumers.
func streamOf(subject string) string { return stream.FindString(subject) }

// campaigns are those that a test may have.
var campaigns = []string{"summer", "winter", "spring", "partner", "flash", "none", "other", "x", "c"}

// Instances are the subjects of a kind in a log of so many lanes.
func Instances(kind string, lanes int) (all []string) {
	for lane := range lanes {
		for _, campaign := range []string{"summer", "winter"} {
			all = append(all, strings.NewReplacer(aLane, string(rune('0'+lane)), aCampaign, campaign, aNumber, "1", aName, "x").Replace(kind))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

const head = "# What each user publishes and subscribes to, recorded in a tour of all features. Made by:\n#   go test ./cmd/scrip -run TestRights -update-rights\n"

// Text is a list as a file.
func Text(kinds map[string]bool) string {
	var lines []string
	for line := range kinds {
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return head + strings.Join(lines, "\n") + "\n"
}

// Read reads such a file.
func Read(path string) (map[string]bool, error) {
	raw, err := os.ReadFile(path)
	kinds := map[string]bool{}
	for line := range strings.Lines(string(raw)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			kinds[line] = true
		}
	}
	return kinds, err
}
