package console

// Pages are the paths and names of all pages, and Acts the ids of all acts with their fields.
func Pages() (all [][2]string) {
	for i := range pages {
		all = append(all, [2]string{pages[i].path, pages[i].name})
	}
	return all
}

// Acts are the ids of all acts.
func Acts() (all []string) {
	for i := range acts {
		all = append(all, acts[i].id)
	}
	return all
}
