"""Does a run without a configuration name what a record of every module shows to be longest?"""
