"""Does a run without a configuration name the modules that a record of every module shows to be longest?"""
