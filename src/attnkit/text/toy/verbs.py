"""The verbs of the English-French lexicon: principal parts, and which subjects and objects make sense with them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Verb:
    """One sense of an English verb and its French.

    ``preposition`` stands before a French object ("de" in ``jouer de``; English carries its own in ``en``: "look at").
    Flags: ``stative`` (no progressive; the past is the imperfect unless ``compound``), ``instant`` (no
    progressive), ``movement`` (conjugated with être),
    ``reflexive``, ``same`` (English past equals present: kept out of the present), ``state`` (être and a participle).
    """

    en: str
    past: str
    ing: str
    fr: str
    preposition: str
    subjects: tuple[str, ...]
    objects: tuple[str, ...]
    flags: frozenset[str]

    @property
    def with_etre(self) -> bool:
        """Whether the compound past takes être and agrees with the subject."""
        return "movement" in self.flags or "reflexive" in self.flags


# English base, past, -ing | French [+ preposition] | subject kinds | object kinds (nouns by @name) | flags
_TRANSITIVE = """
eat ate eating | manger | person pet | food meal
drink drank drinking | boire | person | drink
cook cooked cooking | préparer | person | food @soup @rice @chicken @meat
cut cut cutting | couper | person | @bread @cheese @cake @meat @apple @tomato | same
read read reading | lire | person | readable | same
write wrote writing | écrire | person | @letter @story @poem @book @song @word
buy bought buying | acheter | person | food mass portable clothes vehicle instrument surface @house @farm
sell sold selling | vendre | person | food mass portable clothes vehicle instrument @house @farm
find found finding | trouver | person | portable clothes food pet | instant
lose lost losing | perdre | person | portable clothes | instant
break broke breaking | casser | person | dish @toy @window @chair @clock @phone @lamp @guitar | instant
open opened opening | ouvrir | person | opening container @bottle @letter
close closed closing | fermer | person | opening container @bottle @book
wash washed washing | laver | person | dish vehicle clothes @apple @dog @carrot
clean cleaned cleaning | nettoyer | person | @kitchen @house @room @bedroom @window @table @office @car
see saw seeing | voir | person | person animal portable vehicle sight place | instant
look_at looked_at looking_at | regarder | person | person animal sight @painting @map @photo @watch @clock
watch watched watching | regarder | person | shown @bird @horse
look_for looked_for looking_for | chercher | person | portable clothes person pet goal
wait_for waited_for waiting_for | attendre | person | person @train @bus @plane @letter
listen_to listened_to listening_to | écouter | person | @song @story person @bird
carry carried carrying | porter | person | container @box @bottle @chair @computer @child @baby
wear wore wearing | porter | person | clothes
take took taking | prendre | person | portable clothes vehicle
hold held holding | tenir | person | portable @baby
bring brought bringing | apporter | person | portable food drink @chair
hide hid hiding | cacher | person | portable clothes @cake
forget forgot forgetting | oublier | person | portable clothes @answer @word @lesson | instant
love loved loving | aimer | person | person animal work place instrument food mass | stative
like liked liking | aimer | person | animal work place clothes food mass | stative
hate hated hating | détester | person | animal work place food mass | stative
know knew knowing | connaître | person | person place @song @story | stative
have had having | avoir | person | animal portable clothes vehicle instrument kin @friend @idea @problem | stative
want wanted wanting | vouloir | person | animal portable clothes vehicle food mass instrument | stative
need needed needing | avoir_besoin + de | person | portable clothes vehicle food mass | stative
meet met meeting | rencontrer | person | person
visit visited visiting | visiter | person | place @castle @tower @island
visit visited visiting | rendre_visite + à | person | person
call called calling | appeler | person | person
help helped helping | aider | person | person
thank thanked thanking | remercier | person | person
invite invited inviting | inviter | person | person
follow followed following | suivre | person animal | person animal vehicle
answer answered answering | répondre + à | person | person @question @letter
understand understood understanding | comprendre | person | work person | stative compound
learn learned learning | apprendre | person | @lesson @language @song @poem @word
explain explained explaining | expliquer | person | @lesson @problem @idea @game @exercise @answer
tell told telling | raconter | person | @story @secret
build built building | construire | person | @house @bridge @wall @tower @castle @boat
repair repaired repairing | réparer | person | vehicle @clock @watch @door @window @roof @computer @chair
drive drove driving | conduire | person | @car @bus @train
push pushed pushing | pousser | person | @car @door @table @bicycle
throw threw throwing | lancer | person | @ball @stone
catch caught catching | attraper | person pet | @ball @mouse @bird @rabbit
receive received receiving | recevoir | person | @letter @gift @newspaper @answer | instant
steal stole stealing | voler | person | portable vehicle
send sent sending | envoyer | person | @letter @gift @photo @book @flower @newspaper
show showed showing | montrer | person | portable clothes vehicle
miss missed missing | rater | person | @train @bus @plane | instant
leave left leaving | quitter | person | place
enter entered entering | entrer + dans | person pet | inside | movement
play played playing | jouer + de | person | instrument
choose chose choosing | choisir | person | portable clothes work food
finish finished finishing | finir | person | @book @letter @lesson @exercise @game @cake @soup
turn_on turned_on turning_on | allumer | person | @lamp @computer @light
turn_off turned_off turning_off | éteindre | person | @lamp @computer @light
light lit lighting | allumer | person | @candle
sing sang singing | chanter | person | @song
"""
_INTRANSITIVE = """
sleep slept sleeping | dormir | person animal
work worked working | travailler | person
run ran running | courir | person animal
walk walked walking | marcher | person animal
swim swam swimming | nager | person @dog @bear @duck
sing sang singing | chanter | person @bird
dance danced dancing | danser | person
laugh laughed laughing | rire | person
cry cried crying | pleurer | person
smile smiled smiling | sourire | person
fall fell falling | tomber | person animal | movement instant
arrive arrived arriving | arriver | person vehicle | movement
leave left leaving | partir | person vehicle | movement
come_back came_back coming_back | revenir | person pet | movement
go_out went_out going_out | sortir | person pet | movement
play played playing | jouer | @child @boy @girl pet
talk talked talking | parler | person
travel traveled traveling | voyager | person
fly flew flying | voler | @bird @plane
jump jumped jumping | sauter | person animal
eat ate eating | manger | person animal
wait waited waiting | attendre | person
study studied studying | étudier | person
get_up got_up getting_up | se lever | person | reflexive
wake_up woke_up waking_up | se réveiller | person | reflexive
rest rested resting | se reposer | person animal | reflexive
sit sat sitting | assis | person pet @bird | state
lie lay lying | couché | person pet | state
stand stood standing | debout | person | state
"""


def _spaced(text: str) -> str:
    return text.replace("_", " ")


def _parse_line(line: str, *, transitive: bool) -> Verb:
    english, french, subjects, *rest = (part.strip() for part in line.split("|"))
    objects = rest.pop(0).split() if transitive else []
    flags = frozenset(rest[0].split()) if rest else frozenset[str]()
    en, past, ing = (_spaced(form) for form in english.split())
    infinitive, _, preposition = french.partition(" + ")
    infinitive = infinitive.removeprefix("se ")
    return Verb(en, past, ing, _spaced(infinitive), preposition, tuple(subjects.split()), tuple(objects), flags)


TRANSITIVE = tuple(_parse_line(line, transitive=True) for line in _TRANSITIVE.strip().splitlines())
INTRANSITIVE = tuple(_parse_line(line, transitive=False) for line in _INTRANSITIVE.strip().splitlines())

BE = Verb("be", "was", "being", "être", "", (), (), frozenset(["stative"]))
BE_HAVING = Verb("be", "was", "being", "avoir", "", (), (), frozenset(["stative"]))
GO = Verb("go", "went", "going", "aller", "", ("person",), (), frozenset(["movement"]))
KNOW_FACT = Verb("know", "knew", "knowing", "savoir", "", ("person",), (), frozenset(["stative"]))
THINK = Verb("think", "thought", "thinking", "penser", "", ("person",), (), frozenset(["stative"]))
SAY = Verb("say", "said", "saying", "dire", "", ("person",), (), frozenset())
LIVE = Verb("live", "lived", "living", "habiter", "", ("person",), (), frozenset(["stative"]))
GIVE = Verb("give", "gave", "giving", "donner", "", ("person",), (), frozenset())


@dataclass(frozen=True)
class Modal:
    """A verb before an infinitive. ``auxiliary``: English uses it without do ("can swim", "cannot swim")."""

    en: str
    third: str
    fr: str
    auxiliary: bool


MODALS = (
    Modal("can", "can", "pouvoir", True),
    Modal("must", "must", "devoir", True),
    Modal("want to", "wants to", "vouloir", False),
    Modal("like to", "likes to", "aimer", False),
    Modal("going to", "going to", "aller", False),
)
