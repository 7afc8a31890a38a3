package diagnosis

var nameEntries = []Entry{}
