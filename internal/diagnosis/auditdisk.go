package diagnosis

var diskEntries = []Entry{}
