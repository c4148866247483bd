package natsx

import (
	"errors"
	"net/url"
	"strings"
)

// URLs parses a list of NATS URLs as nats.go does: commas between them, blanks around them, and the scheme nats for one
// without a scheme. Its error holds no credentials.
func URLs(list string) (all []*url.URL, err error) {
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimSpace(one); !strings.Contains(one, "://") {
			one = "nats://" + one
		}
		u, err := url.Parse(one)
		if err != nil {
			return nil, errURL
		}
		all = append(all, u)
	}
	return all, nil
}

// errURL does not wrap the parser's error, which has the URL.
var errURL = errors.New("the URL is invalid; give one such as nats://USER:PASSWORD@HOST:PORT, or several separated by commas")

// WithoutUser removes the credentials from a list of URLs, so that it can be shown: a key is the user of its URL.
func WithoutUser(list string) string {
	if list == "" {
		return ""
	}
	all, err := URLs(list)
	if err != nil {
		return "(an invalid URL)"
	}
	var out []string
	for _, u := range all {
		u.User = nil
		out = append(out, u.String())
	}
	return strings.Join(out, ",")
}
