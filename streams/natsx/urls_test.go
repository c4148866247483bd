package natsx

import (
	"strings"
	"testing"
)

func TestURLsAreShownWithoutCredentials(t *testing.T) {
	for list, want := range map[string]string{
		"":                                     "",
		"nats://a:4222":                        "nats://a:4222",
		"nats://me:secret@a:1, nats://b:2":     "nats://a:1,nats://b:2",
		"me:secret@a:1,me:secret@b:2":          "nats://a:1,nats://b:2",
		"tls://" + shopKey + "@a:1":            "tls://a:1",
		shopKey + "@a":                         "nats://a",
		"http://me:secret@127.0.0.1:8080":      "http://127.0.0.1:8080",
		"nats://me:secret@a:1,nats://x secret": "(an invalid URL)",
	} {
		if got := WithoutUser(list); got != want {
			t.Errorf("%s is shown as %s, expected %s", list, got, want)
		}
	}
	if _, err := URLs("nats://me:secret@a:port"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}
