package natsx

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

const shopKey = "sk_producer_0123456789abcdefghjkmnpqrstvwxyz0123456789abcdef"

func TestKeyInbox(t *testing.T) {
	for _, test := range []struct{ key, inbox string }{
		{shopKey, "_INBOX_producer.01234567"},
		{"sk_analyst_" + strings.Repeat("7", 48), "_INBOX_analyst.77777777"},
		{"", ""},
		{"scrip", ""},
		{"sk_", ""},
		{"sk__" + strings.Repeat("7", 48), ""},
		{"sk_producer_", ""},
		{"sk_producer_short", ""},
		{"sk_producer", ""},
		{"sk_producer_>" + strings.Repeat("7", 47), ""},
		{"sk_producer_0.*" + strings.Repeat("7", 45), ""},
		{"sk_pro.ducer_" + strings.Repeat("7", 48), ""},
	} {
		if got := KeyInbox(test.key); got != test.inbox {
			t.Errorf("KeyInbox(%q) is %q, expected %q", test.key, got, test.inbox)
		}
	}
}

func TestKeyedFindsTheKey(t *testing.T) {
	const own = "_INBOX_producer.01234567"
	for _, test := range []struct {
		name, url string
		opts      []nats.Option
		prefix    string
	}{
		{"token in the URL", "nats://" + shopKey + "@127.0.0.1:4222", nil, own},
		{"password in the URL", "nats://shop:" + shopKey + "@127.0.0.1:4222", nil, own},
		{"second of several URLs", "nats://127.0.0.1:4222, nats://" + shopKey + "@127.0.0.1:4223", nil, own},
		{"without a scheme", shopKey + "@127.0.0.1:4222", nil, own},
		{"token as an option", "nats://127.0.0.1:4222", []nats.Option{nats.Token(shopKey)}, own},
		{"password as an option", "nats://127.0.0.1:4222", []nats.Option{nats.UserInfo("shop", shopKey)}, own},
		{"a prefix of the caller's", "nats://" + shopKey + "@127.0.0.1:4222", []nats.Option{nats.CustomInboxPrefix("_INBOX_mine")}, "_INBOX_mine"},
		{"no key", "nats://scrip:secret@127.0.0.1:4222", []nats.Option{nats.Name("x")}, ""},
		{"no URL", "://", nil, ""},
		{"an option that fails", "nats://" + shopKey + "@127.0.0.1:4222", []nats.Option{nats.CustomInboxPrefix(">")}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := nats.GetDefaultOptions()
			for _, set := range Keyed(test.url, test.opts...) {
				_ = set(&o)
			}
			if o.InboxPrefix != test.prefix {
				t.Errorf("the prefix is %q, expected %q", o.InboxPrefix, test.prefix)
			}
		})
	}
}

func FuzzKeyInbox(f *testing.F) {
	f.Add(shopKey)
	f.Add("sk_a_b")
	f.Fuzz(func(t *testing.T, key string) {
		if inbox := KeyInbox(key); inbox != "" && (strings.ContainsAny(inbox, "*> \r\n") || strings.Count(inbox, ".") != 1) {
			t.Errorf("%q has the inbox %q", key, inbox)
		}
	})
}

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
