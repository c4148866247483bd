package wire

// ValidCampaignName reports whether s is 1 to 64 of A-Z a-z 0-9 _ -.
func ValidCampaignName(s string) bool {
	if len(s) == 0 || len(s) > MaxCampaignName {
		return false
	}
	for i := range len(s) {
		if !nameByte[s[i]] {
			return false
		}
	}
	return true
}

// nameByte are the bytes of campaign names. A table, because it is asked for every byte of every line's campaign.
var nameByte = func() (t [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") {
		t[c] = true
	}
	return t
}()

// LaneOf is the lane of a campaign: FNV-1a-32 of its name mod lanes, what NATS' own partition(lanes, 1) computes.
func LaneOf(campaignName string, lanes int) int {
	h := uint32(2166136261)
	for i := 0; i < len(campaignName); i++ {
		h = (h ^ uint32(campaignName[i])) * 16777619
	}
	return int(h % uint32(lanes))
}

// LaneOfNumber is the lane of the campaign with that number.
func LaneOfNumber(number uint32, lanes int) int { return int(number % uint32(lanes)) }
